"""What differs between the replies of the endpoints, and the frame that all of them have."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson
from attrs import frozen

from trioserve.api.cache_report import CacheReport
from trioserve.api.generation import Body
from trioserve.api.sse import event
from trioserve.api.usage import choice_usage, total_usage
from trioserve.core import Finish, TokenLogprobs
from trioserve.engine.request import Delta, Token
from trioserve.engine.stream import RequestStream

Chunk = dict[str, Any]
TOOL_CALLS = "tool_calls"
"""How a choice of a chat ended that stopped after calls of tools."""

HiddenState = npt.NDArray[np.float32] | None


@frozen
class Outcome:
    """What one choice came to, all of it."""

    text: str
    finish: Finish
    tokens: tuple[Token, ...]
    prompt_logprobs: tuple[TokenLogprobs, ...]
    hidden_state: HiddenState


class ReplyShape(Protocol):
    """The objects of one endpoint, for one request. `index` is the choice's in the reply."""

    @property
    def chunk_object(self) -> str:
        """The name of the object that a chunk is."""

    @property
    def reply_object(self) -> str:
        """The name of the object that a whole answer is."""

    @property
    def has_usage_without_options(self) -> bool:
        """The last finish chunk carries usage when the client said nothing about it (D12)."""

    @property
    def has_logprobs(self) -> bool:
        """Whether tokens are shown; if not, `tokens` below are none."""

    @property
    def reads_tokens(self) -> bool:
        """Whether `whole` needs the tokens, shown or not."""

    @property
    def num_reasoning_tokens(self) -> int | None:
        """Tokens of reasoning blocks in all that was made so far; None if none are looked for."""

    @property
    def num_entries(self) -> int:
        """Logprobs written for each token shown."""

    def opening(self, num_choices: int) -> list[Chunk]:
        """Choices of the chunks that precede all others, in order."""

    def echo(self, index: int, read: tuple[TokenLogprobs, ...]) -> Chunk | None:
        """The choice of the chunk that precedes this choice's text, if there is one."""

    def text(self, delta: Delta, tokens: tuple[Token, ...]) -> list[Chunk]:
        """The choices of the chunks that carry a delta's text and these tokens; perhaps none."""

    def finish(self, delta: Delta, finish: Finish, tokens: tuple[Token, ...]) -> list[Chunk]:
        """The choices of what is left of a choice that has ended, and of its finish chunk, which
        carries no generated text."""

    def hidden(self, index: int, state: HiddenState) -> Chunk:
        """The choice of a chunk that carries a hidden state."""

    def whole(self, index: int, outcome: Outcome) -> Chunk:
        """The choice of an answer that is not streamed."""


@frozen
class Frame:
    """What is around the choices of every reply and chunk."""

    stream: RequestStream
    body: Body
    shape: ReplyShape
    model: str
    created: int
    cache: CacheReport

    def reply(self, choices: list[orjson.Fragment]) -> Chunk:
        """A whole answer, of choices that are JSON already."""
        head = self._head(self.shape.reply_object)
        extension = self.cache.extension(self.stream)
        return {**head, "choices": choices, "usage": self._total_usage(), **extension}

    def chunk(self, choice: Chunk, *, is_last_finish: bool = False) -> bytes:
        """The event of one choice's chunk."""
        options = self.body.stream_options
        chunk = {**self._head(self.shape.chunk_object), "choices": [choice]}
        if options is not None and options.continuous_usage_stats:
            chunk["usage"] = choice_usage(self.stream, self.cache, choice["index"])
        elif options is not None and options.include_usage:
            chunk["usage"] = None
        elif is_last_finish and options is None and self.shape.has_usage_without_options:
            chunk["usage"] = self._total_usage()
        return event(chunk)

    def extension_chunk(self) -> bytes | None:
        """The event with what is not OpenAI's, if the client asked for any of it."""
        extension = self.cache.extension(self.stream)
        if not extension:
            return None
        options = self.body.stream_options
        chunk = {**self._head(self.shape.chunk_object), "choices": [], **extension}
        if options is not None and options.continuous_usage_stats:
            chunk["usage"] = self._total_usage()
        elif options is not None and options.include_usage:
            chunk["usage"] = None
        return event(chunk)

    def usage_chunk(self) -> bytes | None:
        """The event that reports the request's usage, if the client asked for one."""
        options = self.body.stream_options
        if options is None or not options.include_usage:
            return None
        head = self._head(self.shape.chunk_object)
        return event({**head, "choices": [], "usage": self._total_usage()})

    def _total_usage(self) -> dict[str, Any]:
        return total_usage(self.stream, self.cache, self.shape.num_reasoning_tokens)

    def _head(self, object_name: str) -> Chunk:
        return {
            "id": self.stream.request.request_id,
            "object": object_name,
            "created": self.created,
            "model": self.model,
        }


def shown_state(state: HiddenState) -> list[float]:
    """A hidden state as numbers; empty for a choice that no token was drawn for."""
    return [] if state is None else state.tolist()
