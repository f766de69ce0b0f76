"""A stream of deltas as HTTP: one JSON object, or server-sent events in the contract's order.

What differs between completions and chat is a `ReplyShape`; the order of chunks, usage and errors
is here, once.
"""

from collections.abc import AsyncIterator
from typing import Any, Protocol

import orjson
import structlog
from attrs import define, field
from quart import Response

from trioserve.api.accounting import RequestAccount, current_account
from trioserve.api.errors import to_api_error
from trioserve.api.schema import GenerationParams
from trioserve.api.sse import DONE, error_event, event, stream_response
from trioserve.api.usage import choice_usage, total_usage
from trioserve.core import Finish
from trioserve.engine.stream import RequestStream
from trioserve.errors import TrioserveError

log = structlog.get_logger("trioserve.api")

Chunk = dict[str, Any]


class ReplyShape(Protocol):
    """The objects of one endpoint."""

    chunk_object: str
    reply_object: str
    has_usage_without_options: bool
    """The last finish chunk carries usage when the client said nothing about it (D12)."""

    def opening(self, num_choices: int) -> list[Chunk]:
        """Choices of the chunks that precede all others, in order."""

    def text(self, index: int, text: str) -> Chunk:
        """The choice of a chunk that carries text."""

    def finish(self, index: int, finish: Finish) -> Chunk:
        """The choice of a finish chunk, which carries no text."""

    def whole(self, index: int, text: str, finish: Finish) -> Chunk:
        """The choice of an answer that is not streamed."""


@define(eq=False)
class Reply:
    """Answers one admitted request."""

    stream: RequestStream
    params: GenerationParams
    shape: ReplyShape
    account: RequestAccount = field(factory=current_account)

    async def respond(self) -> Response:
        """The response, streamed or whole as asked for. A checkpoint.

        Raises TrioserveError if a whole answer failed; a stream that has begun carries its error.
        """
        if self.params.is_streamed:
            return stream_response(self._events())
        return await self._whole()

    async def _whole(self) -> Response:
        texts: list[list[str]] = [[] for _ in self.stream.choices]
        finishes: list[Finish | None] = [None] * len(texts)
        while None in finishes:
            for delta in await self.stream.receive():
                texts[delta.index].append(delta.text)
                finishes[delta.index] = delta.finish
        choices = [
            self.shape.whole(index, "".join(pieces), finish)
            for index, (pieces, finish) in enumerate(zip(texts, finishes, strict=True))
            if finish is not None
        ]
        reply = {
            **self._head(self.shape.reply_object),
            "choices": choices,
            "usage": total_usage(self.stream),
        }
        return Response(orjson.dumps(reply), content_type="application/json")

    async def _events(self) -> AsyncIterator[bytes]:
        """Reads the stream and nothing else: it is opened and closed by the request's stack.

        No nursery and no cancel scope around a yield: this generator is resumed by whoever sends.
        """
        try:
            num_open = len(self.stream.choices)
            is_opened = False
            while num_open:
                deltas = await self.stream.receive()
                pieces: list[bytes] = []
                if not is_opened:
                    is_opened = True
                    opening = self.shape.opening(len(self.stream.choices))
                    pieces += [self._chunk(choice) for choice in opening]
                for delta in deltas:
                    if delta.text:
                        pieces.append(self._chunk(self.shape.text(delta.index, delta.text)))
                    if delta.finish is not None:
                        num_open -= 1
                        choice = self.shape.finish(delta.index, delta.finish)
                        pieces.append(self._chunk(choice, is_last=num_open == 0))
                if not num_open:
                    if self.params.stream_options.includes_usage:
                        head = self._head(self.shape.chunk_object)
                        usage = total_usage(self.stream)
                        pieces.append(event({**head, "choices": [], "usage": usage}))
                    pieces.append(DONE)
                    self.account.outcome = "ok"
                # All that came since the last write goes out as one write: an event costs the
                # front end about as much as a step of a small model costs a core.
                if pieces:
                    yield b"".join(pieces)
        except TrioserveError as error:
            yield self._failed(error)

    def _failed(self, error: TrioserveError) -> bytes:
        answer = to_api_error(error, self.account.request_id)
        self.account.outcome = str(answer.status)
        self.account.error = str(error)
        log.error("request failed", id=self.stream.request.request_id, error=str(error))
        return error_event(answer) + DONE

    def _chunk(self, choice: Chunk, *, is_last: bool = False) -> bytes:
        options = self.params.stream_options
        chunk = {**self._head(self.shape.chunk_object), "choices": [choice]}
        if options.has_continuous_usage:
            chunk["usage"] = choice_usage(self.stream, choice["index"])
        elif options.includes_usage:
            chunk["usage"] = None
        elif is_last and not options.is_given and self.shape.has_usage_without_options:
            chunk["usage"] = total_usage(self.stream)
        return event(chunk)

    def _head(self, object_name: str) -> Chunk:
        return {
            "id": self.stream.request.request_id,
            "object": object_name,
            "created": self.account.created,
            "model": self.params.model,
        }
