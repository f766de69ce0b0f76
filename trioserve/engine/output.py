"""`ChoiceOutput`: what one choice has come to and its reader has not taken yet."""

import numpy as np
import numpy.typing as npt
import structlog
from attrs import Factory, define, field

from trioserve.core import Finish, TokenLogprobs
from trioserve.device.base import RowReadout
from trioserve.engine.request import Delta, Generation, TextWatch, Token
from trioserve.engine.token_entries import TokenEntries
from trioserve.errors import RequestFailed, TrioserveError
from trioserve.text.assembler import Assembled, TextAssembler

log = structlog.get_logger("trioserve")


def _new_watch(output: "ChoiceOutput") -> TextWatch | None:
    new_watch = output.generation.new_watch
    return None if new_watch is None else new_watch()


@define(eq=False)
class ChoiceOutput:
    """Made with a choice's first token, or with what is read of its prompt."""

    generation: Generation
    assembler: TextAssembler
    hidden_states: list[npt.NDArray[np.float32]] = field(init=False, factory=list)
    """What each token was drawn from, or what would follow a prompt after which none is; empty
    unless asked for."""
    prompt_logprobs: list[TokenLogprobs] = field(init=False, factory=list)
    """Of the prompt's tokens, from the first one asked for on."""
    is_complete: bool = field(init=False, default=False)
    """Whether the text says that there is no more to come."""
    _watch: TextWatch | None = field(init=False, default=Factory(_new_watch, takes_self=True))
    _text: list[str] = field(init=False, factory=list)
    _num_chars: int = field(init=False, default=0)
    _entries: TokenEntries = field(init=False, factory=TokenEntries)
    _is_prompt_taken: bool = field(init=False, default=False)

    def add_readout(self, target_start: int, readout: RowReadout) -> None:
        """What was read in a row of the plan, but for the logprobs of the token it drew.

        A prompt that is computed again after a preemption is read again: each position counts once.
        """
        if readout.prompt:
            num_known = self._first_read + len(self.prompt_logprobs) - target_start
            assert num_known >= 0, f"prompt tokens before {target_start} were not read"
            self.prompt_logprobs += readout.prompt[num_known:]
        if readout.vector is not None:
            self.hidden_states.append(readout.vector)

    def add_token(self, token_id: int, logprobs: TokenLogprobs | None) -> str | None:
        """A token that goes on with the text, or ends it: the stop that it completed, if any.

        Raises RequestError if the stop patterns take too long, and RequestFailed if the token
        cannot be made text: the tokenizer's own library may fail, and others go on.
        """
        try:
            assembled = self.assembler.feed(token_id)
            if self._watch is not None and self._watch(assembled.text):
                self.is_complete = True
        except TrioserveError:
            raise
        except Exception as error:
            raise _text_failure(token_id, error) from error
        self._add(token_id, logprobs, assembled)
        return assembled.matched_stop

    def add_last_token(self, token_id: int, logprobs: TokenLogprobs | None) -> None:
        """The token that ends the choice by its id. Raises RequestFailed as `add_token`."""
        try:
            assembled = self.assembler.feed_last(token_id)
        except Exception as error:
            raise _text_failure(token_id, error) from error
        self._add(token_id, logprobs, assembled)

    def end(self) -> None:
        """Show what was held back, unless a stop has cut it off."""
        try:
            self._show(self.assembler.flush())
        except Exception:
            # It must not keep the choice, or others after it, from ending.
            log.exception("held-back text could not be made")
        self._entries.show_all(self._num_chars)

    def take(self, index: int, num_tokens: int, finish: Finish | None) -> Delta:
        """Everything since the last take, as one piece; `finish` once the choice has ended."""
        is_finished = finish is not None
        delta = Delta(
            index=index,
            text="".join(self._text),
            num_tokens=num_tokens,
            finish=finish,
            tokens=self._entries.take(),
            prompt_logprobs=self._take_prompt(),
            hidden_state=self.hidden_states[-1] if is_finished and self.hidden_states else None,
        )
        self._text.clear()
        return delta

    @property
    def _first_read(self) -> int:
        return max(1, self.generation.readout.prompt_from or 0)

    def _add(self, token_id: int, logprobs: TokenLogprobs | None, assembled: Assembled) -> None:
        token = Token(token_id, assembled.text_start, logprobs)
        self._entries.add(token, assembled.text_end)
        self._show(assembled.text)

    def _show(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._num_chars += len(text)
        self._entries.show(self._num_chars)

    def _take_prompt(self) -> tuple[TokenLogprobs, ...]:
        if self._is_prompt_taken or self.generation.readout.prompt_from is None:
            return ()
        num_asked = max(0, len(self.generation.prompt_ids) - self._first_read)
        self._is_prompt_taken = len(self.prompt_logprobs) == num_asked
        return tuple(self.prompt_logprobs) if self._is_prompt_taken else ()


def _text_failure(token_id: int, error: Exception) -> RequestFailed:
    return RequestFailed(f"token {token_id} could not be made text: {error!r}")
