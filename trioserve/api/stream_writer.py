"""`StreamWriter`: one request's stream as server-sent events, whatever is in them."""

from collections.abc import AsyncIterator
from math import inf

import structlog
import trio
from attrs import define, field

from trioserve.api.accounting import RequestAccount
from trioserve.api.errors import ApiError, internal_error, to_api_error
from trioserve.api.sse import DONE, PING, error_event
from trioserve.engine.request import Delta
from trioserve.engine.stream import RequestStream
from trioserve.errors import TrioserveError

log = structlog.get_logger("trioserve.api")

ITEMS_AT_ONCE = 500
"""Choices and logprobs written between two checkpoints: a few milliseconds."""


@define(eq=False)
class StreamWriter:
    """Pings, errors and the end; what stands in the events is a subclass's. Used once."""

    stream: RequestStream
    account: RequestAccount
    ping_interval_s: float
    """A stream that was silent for so long is sent a comment; 0 sends none."""
    _sent_at: float = field(init=False, factory=trio.current_time)

    async def _events_of(self, deltas: tuple[Delta, ...]) -> bytes:
        """The events for these, perhaps none. May be a checkpoint."""
        raise NotImplementedError

    async def events(self) -> AsyncIterator[bytes]:
        """Reads the stream and nothing else: it is opened and closed by the request's stack.

        No nursery and no cancel scope around a yield: this generator is resumed by whoever sends.
        """
        num_open = len(self.stream.choices)
        try:
            while num_open:
                deltas = await self._receive()
                # All that came since the last write goes out as one write: an event costs the
                # front end about as much as a step of a small model costs a core.
                data = PING if deltas is None else await self._events_of(deltas)
                num_open -= sum(delta.finish is not None for delta in deltas or ())
                if not num_open:
                    data += DONE
                    self.account.outcome = "ok"
                if data:
                    yield data
                    self._sent_at = trio.current_time()
        except TrioserveError as error:
            yield self._failed(error)
        except Exception as error:  # a bug; the client is told as much as it is by a 500
            log.error("internal error", id=self.account.request_id, exc_info=error)
            yield self._ended_by(internal_error(self.account.request_id), error)

    async def _receive(self) -> tuple[Delta, ...] | None:
        """The next deltas, or None if it is time for a ping. A checkpoint."""
        with trio.move_on_at(self._sent_at + (self.ping_interval_s or inf)):
            return await self.stream.receive()
        return None

    def _failed(self, error: TrioserveError) -> bytes:
        answer = to_api_error(error, self.account.request_id)
        if answer.status == 500:
            log.error("request failed", id=self.stream.request.request_id, error=str(error))
        return self._ended_by(answer, error)

    def _ended_by(self, answer: ApiError, error: Exception) -> bytes:
        self.account.outcome = str(answer.status)
        self.account.error = str(error)
        return error_event(answer) + DONE
