"""What a request is refused for before it is enqueued. Pure functions, called by the engine."""

from trioserve.engine.request import GenerateRequest
from trioserve.engine.statistics import EngineStatistics
from trioserve.errors import RequestError, Unavailable


def check_room(limit: int | None, num_over: int | None, statistics: EngineStatistics) -> None:
    """Raise Unavailable, and count it, if as many sequences wait as may.

    `num_over` is how many wait because all slots are taken; None while a slot is free.
    """
    if limit is not None and num_over is not None and num_over >= limit:
        statistics.rejected.inc()
        raise Unavailable("The request queue is full.", code="overloaded")


def check_fits(request: GenerateRequest, capacity_tokens: int) -> None:
    """Raise RequestError for a prompt that can never have all of its tokens in the page pool."""
    for generation in request.generations:
        num_tokens = len(generation.prompt_ids) + generation.max_tokens
        # The last token is never fed back, so it needs no slot.
        if num_tokens - (generation.max_tokens > 0) > capacity_tokens:
            raise RequestError(
                f"This request needs {num_tokens} tokens, which exceeds the "
                f"cache capacity of {capacity_tokens} tokens.",
                param=request.limit_param,
                code="context_length_exceeded",
            )
