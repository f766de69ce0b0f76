"""`Choice`: one sample of one prompt, from its tokens to the text its reader has not taken yet."""

import math

import structlog
from attrs import define, field

from trioserve.core import Finish, FinishReason, StopParams
from trioserve.engine.request import Delta
from trioserve.errors import RequestFailed
from trioserve.scheduler.sequence import Sequence
from trioserve.text.assembler import TextAssembler

log = structlog.get_logger("trioserve")


@define(eq=False)
class Choice:
    """Written by commit and abort, emptied by the stream's reader; one thread."""

    index: int
    sequence: Sequence
    stop: StopParams
    eos_ids: frozenset[int]
    assembler: TextAssembler
    finish: Finish | None = field(init=False, default=None)
    num_tokens: int = field(init=False, default=0)
    """Tokens generated and billed."""
    last_token_at: float = field(init=False, default=-math.inf)
    _text: list[str] = field(init=False, factory=list)
    _num_untaken: int = field(init=False, default=0)
    _is_finish_taken: bool = field(init=False, default=False)

    @property
    def num_untaken(self) -> int:
        """Tokens that the reader has not taken."""
        return self._num_untaken

    @property
    def has_news(self) -> bool:
        """Whether `take` has something to give."""
        return self._num_untaken > 0 or (self.finish is not None and not self._is_finish_taken)

    def commit(self, token_id: int) -> Finish | None:
        """Append one sampled token; says how the choice ends by it, if it does.

        Raises RequestFailed if the token cannot be made text: the tokenizer's own library may
        fail, and others go on.
        """
        self.sequence.append(token_id)
        self.num_tokens += 1
        self._num_untaken += 1
        if token_id in self.stop.token_ids or (
            token_id in self.eos_ids and not self.stop.is_eos_ignored
        ):
            return Finish(FinishReason.STOP, token_id)
        try:
            assembled = self.assembler.feed((token_id,))
        except Exception as error:
            raise RequestFailed(f"token {token_id} could not be made text: {error!r}") from error
        self._text.append(assembled.text)
        if assembled.matched_stop is not None:
            return Finish(FinishReason.STOP, assembled.matched_stop)
        if self.num_tokens >= self.sequence.max_tokens:
            return Finish(FinishReason.LENGTH)
        return None

    def end(self, finish: Finish) -> None:
        """Close the choice. Held-back text goes out, unless a stop string has cut it off."""
        assert self.finish is None, f"choice {self.index} ended twice: {self.finish}, {finish}"
        self.finish = finish
        if not isinstance(finish.matched_stop, str):
            try:
                self._text.append(self.assembler.flush())
            except Exception:
                # It must not keep the choice, or others after it, from ending.
                log.exception("held-back text could not be made", choice=self.index)

    def take(self) -> Delta:
        """Everything since the last take, as one piece."""
        delta = Delta(self.index, "".join(self._text), self._num_untaken, self.finish)
        self._text.clear()
        self._num_untaken = 0
        self._is_finish_taken = self.finish is not None
        return delta
