"""The objects of `POST /v1/chat/completions`."""

from typing import Any, ClassVar

from attrs import define, field

from trioserve.api.chat_parts import ChatParts
from trioserve.api.logprobs import ChatLogprobs
from trioserve.api.reply_shape import TOOL_CALLS, Chunk, HiddenState, Outcome, shown_state
from trioserve.core import Finish, FinishReason, TokenLogprobs
from trioserve.engine.request import Delta, Token
from trioserve.text.reply_reader import ReplySyntax


@define(eq=False)
class ChatShape:
    """See ReplyShape. Remembers how far choices have been read, so it serves one request."""

    logprobs: ChatLogprobs | None
    has_hidden_states: bool
    syntax: ReplySyntax | None = None
    """What replies are read for beside words."""
    streams_reasoning: bool = True
    _choices: dict[int, ChatParts] = field(init=False, factory=dict)

    chunk_object: ClassVar[str] = "chat.completion.chunk"
    reply_object: ClassVar[str] = "chat.completion"
    has_usage_without_options: ClassVar[bool] = False

    @property
    def has_logprobs(self) -> bool:
        """See ReplyShape."""
        return self.logprobs is not None

    @property
    def reads_tokens(self) -> bool:
        """See ReplyShape."""
        return self.has_logprobs or self._has_reasoning

    @property
    def num_reasoning_tokens(self) -> int | None:
        """See ReplyShape."""
        if not self._has_reasoning:
            return None
        return sum(choice.num_reasoning_tokens for choice in self._choices.values())

    @property
    def num_entries(self) -> int:
        """See ReplyShape."""
        return 0 if self.logprobs is None else 1 + self.logprobs.num_top

    def opening(self, num_choices: int) -> list[Chunk]:
        """Each choice's role, in index order: client helpers append choices by position."""
        role = {"role": "assistant", "content": ""}
        return [self._delta(index, role) for index in range(num_choices)]

    def echo(self, index: int, read: tuple[TokenLogprobs, ...]) -> Chunk | None:
        """A chat has no echo."""
        return None

    def text(self, delta: Delta, tokens: tuple[Token, ...]) -> list[Chunk]:
        """See ReplyShape."""
        if self.syntax is None:
            chunk = self._delta(delta.index, {"content": delta.text}, tokens)
            return [chunk] if delta.text or tokens else []
        choice = self._choice(self.syntax, delta.index)
        deltas = choice.deltas(delta.text, tokens)
        choice.count(delta.tokens)
        return [self._delta(delta.index, *each) for each in deltas]

    def finish(self, delta: Delta, finish: Finish, tokens: tuple[Token, ...]) -> list[Chunk]:
        """See ReplyShape."""
        left: list[Chunk] = []
        num_calls = 0
        if self.syntax is not None:
            choice = self._choice(self.syntax, delta.index)
            left = [self._delta(delta.index, *each) for each in choice.last_deltas()]
            tokens = (*choice.take_tokens(), *tokens)
            num_calls = choice.num_calls
        return [*left, self._delta(delta.index, {}, tokens) | _ended(finish, num_calls)]

    def hidden(self, index: int, state: HiddenState) -> Chunk:
        """See ReplyShape."""
        return self._delta(index, {"hidden_states": shown_state(state)})

    def whole(self, index: int, outcome: Outcome) -> Chunk:
        """See ReplyShape."""
        shown = None if self.logprobs is None else self.logprobs.of_tokens(outcome.tokens)
        message: Chunk = {"role": "assistant", "content": outcome.text, "refusal": None}
        num_calls = 0
        if self.syntax is not None:
            parts = self._choice(self.syntax, index)
            message |= parts.message(outcome.text)
            parts.count(outcome.tokens)
            num_calls = parts.num_calls
        choice: Chunk = {
            "index": index,
            "message": message,
            "logprobs": shown,
            **_ended(outcome.finish, num_calls),
        }
        if self.has_hidden_states:
            choice["hidden_states"] = shown_state(outcome.hidden_state)
        return choice

    @property
    def _has_reasoning(self) -> bool:
        return self.syntax is not None and self.syntax.reasoning is not None

    def _choice(self, syntax: ReplySyntax, index: int) -> ChatParts:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = ChatParts(syntax, self.streams_reasoning)
        return choice

    def _delta(self, index: int, delta: dict[str, Any], tokens: tuple[Token, ...] = ()) -> Chunk:
        shown = self.logprobs.of_tokens(tokens) if self.logprobs is not None and tokens else None
        return {"index": index, "delta": delta, "logprobs": shown, "finish_reason": None}


def _ended(finish: Finish, num_calls: int) -> Chunk:
    """A choice that stopped by itself, or by a stop, has ended with its calls if it made any."""
    if num_calls and finish.reason is FinishReason.STOP:
        return {"finish_reason": TOOL_CALLS, "matched_stop": None}
    return {"finish_reason": finish.reason, "matched_stop": finish.matched_stop}
