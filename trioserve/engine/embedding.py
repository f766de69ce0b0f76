"""`OpenEmbedding`: one embeddings request between its admission and its vectors."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import trio
from attrs import define, field, frozen

from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.state import EngineState, refusal
from trioserve.errors import RequestError, RequestFailed, TrioserveError, Unavailable

Vector = npt.NDArray[np.float32]


@frozen
class EmbeddingRequest:
    """One validated request."""

    request_id: str
    inputs: tuple[tuple[int, ...], ...]
    """The token ids of each text; at least one text, each of at least one token."""
    timeout_s: float | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts."""
        return sum(map(len, self.inputs))


@define(eq=False)
class OpenEmbedding:
    """Made by `Engine.open_embedding`; read by the request's own task.

    It ends once: with all its vectors, or with an error. There is nothing in between that a client
    could be given, so an abort is an error, too.
    """

    request: EmbeddingRequest
    deadline: float
    """Trio time at which the request is aborted; infinite without a request timeout."""
    on_deadline: Callable[["OpenEmbedding"], None]
    opened_at: float
    is_closed: bool = field(init=False, default=False)
    error: TrioserveError | None = field(init=False, default=None)
    _vectors: dict[int, Vector] = field(init=False, factory=dict)
    _started: trio.Event = field(init=False, factory=trio.Event)
    _ended: trio.Event = field(init=False, factory=trio.Event)

    @property
    def is_started(self) -> bool:
        """Whether a step has included one of the texts, or the request has ended."""
        return self._started.is_set()

    @property
    def is_finished(self) -> bool:
        """Whether nothing more happens to it."""
        return self._ended.is_set()

    async def wait_started(self) -> None:
        """Wait until the first text is in a step. A checkpoint. Raises what ended the request."""
        await self._wait(self._started)

    async def wait_vectors(self) -> Sequence[Vector]:
        """The vector of each text, in order. A checkpoint. Raises what ended the request."""
        await self._wait(self._ended)
        return [self._vectors[index] for index in range(len(self.request.inputs))]

    def mark_started(self) -> None:
        """A step includes one of the texts now. Not a checkpoint."""
        self._started.set()

    def put(self, index: int, vector: Vector) -> None:
        """Text `index` is done; the last one ends the request. Not a checkpoint."""
        assert not self.is_finished, f"a vector for request {self.request.request_id} that ended"
        assert index not in self._vectors, f"two vectors for text {index}"
        self._vectors[index] = vector
        if len(self._vectors) == len(self.request.inputs):
            self._ended.set()

    def fail(self, error: TrioserveError) -> None:
        """End the request without its vectors. Idempotent, not a checkpoint."""
        if not self.is_finished:
            self.error = error
            self._vectors.clear()
            self._started.set()
            self._ended.set()

    async def _wait(self, event: trio.Event) -> None:
        with trio.move_on_at(self.deadline) as deadline:
            await event.wait()
        if deadline.cancelled_caught:
            self.on_deadline(self)
        if self.error is not None:
            raise self.error


def aborted(request: EmbeddingRequest, reason: AbortReason) -> TrioserveError:
    """What a request that was aborted ends with."""
    match reason:
        case AbortReason.SHUTDOWN:
            return refusal(EngineState.DRAINING)
        case AbortReason.TIMEOUT:
            message = f"The request did not finish within {request.timeout_s:g} s."
            return Unavailable(message, code="overloaded")
        case AbortReason.REQUESTED:
            # Not 503, which clients try again: somebody wants it to be over.
            return RequestError("The request was aborted.", param=None)
        case _:  # nobody waits for it any more
            return RequestFailed(f"the request was aborted: {reason}")
