"""`EngineState`: what an engine can do, and what a request is told when that is nothing."""

from enum import StrEnum

from trioserve.errors import Unavailable


class EngineState(StrEnum):
    """What the engine can do now."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


def refusal(state: EngineState) -> Unavailable:
    """The answer to new work in any state but READY."""
    match state:
        case EngineState.LOADING:
            return Unavailable("The model is loading.", code="model_loading", retry_after_s=5)
        case EngineState.DRAINING:
            return Unavailable("The server is shutting down.", code="shutting_down")
        case EngineState.DEAD:
            message = "The engine has failed; the server is exiting."
            return Unavailable(message, code="engine_dead")
        case EngineState.READY:
            raise AssertionError("a ready engine refuses nothing")
