"""The objects of `POST /v1/chat/completions`."""

from typing import Any, ClassVar

from attrs import frozen

from trioserve.api.logprobs import ChatLogprobs
from trioserve.api.reply_shape import Chunk, HiddenState, Outcome, shown_state
from trioserve.core import Finish, TokenLogprobs
from trioserve.engine.request import Token


@frozen
class ChatShape:
    """See ReplyShape."""

    logprobs: ChatLogprobs | None
    has_hidden_states: bool

    chunk_object: ClassVar[str] = "chat.completion.chunk"
    reply_object: ClassVar[str] = "chat.completion"
    has_usage_without_options: ClassVar[bool] = False

    @property
    def has_logprobs(self) -> bool:
        """See ReplyShape."""
        return self.logprobs is not None

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

    def text(self, index: int, text: str, tokens: tuple[Token, ...]) -> Chunk:
        """See ReplyShape."""
        return self._delta(index, {"content": text}, tokens)

    def finish(self, index: int, finish: Finish, tokens: tuple[Token, ...]) -> Chunk:
        """See ReplyShape."""
        return {
            **self._delta(index, {}, tokens),
            "finish_reason": finish.reason,
            "matched_stop": finish.matched_stop,
        }

    def hidden(self, index: int, state: HiddenState) -> Chunk:
        """See ReplyShape."""
        return self._delta(index, {"hidden_states": shown_state(state)})

    def whole(self, index: int, outcome: Outcome) -> Chunk:
        """See ReplyShape."""
        shown = None if self.logprobs is None else self.logprobs.of_tokens(outcome.tokens)
        choice: Chunk = {
            "index": index,
            "message": {"role": "assistant", "content": outcome.text, "refusal": None},
            "logprobs": shown,
            "finish_reason": outcome.finish.reason,
            "matched_stop": outcome.finish.matched_stop,
        }
        if self.has_hidden_states:
            choice["hidden_states"] = shown_state(outcome.hidden_state)
        return choice

    def _delta(self, index: int, delta: dict[str, Any], tokens: tuple[Token, ...] = ()) -> Chunk:
        shown = self.logprobs.of_tokens(tokens) if self.logprobs is not None and tokens else None
        return {"index": index, "delta": delta, "logprobs": shown, "finish_reason": None}
