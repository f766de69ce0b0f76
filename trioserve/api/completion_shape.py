"""The objects of `POST /v1/completions`."""

from typing import ClassVar

from attrs import frozen

from trioserve.api.logprobs import CompletionLogprobs
from trioserve.api.reply_shape import Chunk, HiddenState, Outcome, shown_state
from trioserve.core import Finish, FinishReason, TokenLogprobs
from trioserve.engine.request import Delta, Token
from trioserve.text.token_offsets import OffsetText


@frozen
class CompletionShape:
    """See ReplyShape."""

    num_samples: int
    """Choices a prompt in the reply."""
    echoed: tuple[OffsetText, ...]
    """The prompts, if each choice begins with its own."""
    suffix: str
    """Ends each choice that was not aborted; has no logprobs."""
    logprobs: CompletionLogprobs | None
    has_hidden_states: bool

    chunk_object: ClassVar[str] = "text_completion"
    reply_object: ClassVar[str] = "text_completion"
    has_usage_without_options: ClassVar[bool] = True
    num_reasoning_tokens: ClassVar[int | None] = None

    @property
    def has_logprobs(self) -> bool:
        """See ReplyShape."""
        return self.logprobs is not None

    @property
    def reads_tokens(self) -> bool:
        """See ReplyShape."""
        return self.has_logprobs

    @property
    def num_entries(self) -> int:
        """See ReplyShape."""
        return 0 if self.logprobs is None else 1 + self.logprobs.num_top

    def opening(self, num_choices: int) -> list[Chunk]:
        """Completions begin with their text."""
        return []

    def echo(self, index: int, read: tuple[TokenLogprobs, ...]) -> Chunk | None:
        """See ReplyShape."""
        prompt = self._prompt(index)
        if prompt is None:
            return None
        shown = None if self.logprobs is None else self.logprobs.of_prompt(prompt, read)
        return {"index": index, "text": prompt.text, "logprobs": shown, "finish_reason": None}

    def text(self, delta: Delta, tokens: tuple[Token, ...]) -> list[Chunk]:
        """See ReplyShape."""
        if not delta.text and not tokens:
            return []
        chunk = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": self._shown(delta.index, tokens),
            "finish_reason": None,
        }
        return [chunk]

    def finish(self, delta: Delta, finish: Finish, tokens: tuple[Token, ...]) -> list[Chunk]:
        """See ReplyShape."""
        chunk = {
            "index": delta.index,
            "text": self._suffix(finish),
            "logprobs": self._shown(delta.index, tokens),
            "finish_reason": finish.reason,
            "matched_stop": finish.matched_stop,
        }
        return [chunk]

    def hidden(self, index: int, state: HiddenState) -> Chunk:
        """See ReplyShape."""
        return {
            "index": index,
            "text": "",
            "logprobs": None,
            "hidden_states": shown_state(state),
            "finish_reason": None,
        }

    def whole(self, index: int, outcome: Outcome) -> Chunk:
        """See ReplyShape."""
        prompt = self._prompt(index)
        before = "" if prompt is None else prompt.text
        shown = None
        if self.logprobs is not None:
            shown = self.logprobs.of_tokens(outcome.tokens, len(before))
            if prompt is not None:
                of_prompt = self.logprobs.of_prompt(prompt, outcome.prompt_logprobs)
                shown = self.logprobs.join(of_prompt, shown)
        choice: Chunk = {
            "index": index,
            "text": before + outcome.text + self._suffix(outcome.finish),
            "logprobs": shown,
            "finish_reason": outcome.finish.reason,
            "matched_stop": outcome.finish.matched_stop,
        }
        if self.has_hidden_states:
            choice["hidden_states"] = shown_state(outcome.hidden_state)
        return choice

    def _prompt(self, index: int) -> OffsetText | None:
        return self.echoed[index // self.num_samples] if self.echoed else None

    def _suffix(self, finish: Finish) -> str:
        return "" if finish.reason is FinishReason.ABORT else self.suffix

    def _shown(self, index: int, tokens: tuple[Token, ...]) -> Chunk | None:
        if self.logprobs is None or not tokens:
            return None
        prompt = self._prompt(index)
        return self.logprobs.of_tokens(tokens, 0 if prompt is None else len(prompt.text))
