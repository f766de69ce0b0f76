"""What a sequence comes to when it is alone: the reference of every history."""

from functools import cache

from attrs import frozen

from trioserve.core import Finish, FinishReason, StopParams
from trioserve.testing.fake_model import LETTERS, continuation
from trioserve.testing.fake_text import EOS_ID

VOCABULARY = (*LETTERS, EOS_ID)
POISON = ord("!")


@frozen
class Outcome:
    """All that a choice comes to when nothing disturbs it."""

    pieces: tuple[str, ...]
    """The text of each token, the one that ends the choice included."""
    text: str
    finish: Finish

    @property
    def num_tokens(self) -> int:
        """Tokens billed."""
        return len(self.pieces)

    def text_of(self, num_tokens: int) -> str:
        """All text of the first tokens, as an abort after them leaves it: nothing is held back."""
        return "".join(self.pieces[:num_tokens])


@cache
def one_at_a_time(
    prompt: tuple[int, ...],
    sample_index: int,
    max_tokens: int,
    stop: StopParams,
    poison: int | None = POISON,
) -> Outcome | None:
    """The reference: one sequence alone, a token at a time, no pages. None: it fails."""
    if poison in prompt:
        return None
    pieces: list[str] = []
    for token in continuation(prompt, max_tokens, sample_index, VOCABULARY):
        pieces.append("" if token == EOS_ID else chr(token))
        text = "".join(pieces)
        if token == EOS_ID and not stop.is_eos_ignored:
            return Outcome(tuple(pieces), text, Finish(FinishReason.STOP, token))
        for string in stop.strings:
            if string in text:
                cut = text[: text.index(string)]
                return Outcome(tuple(pieces), cut, Finish(FinishReason.STOP, string))
    return Outcome(tuple(pieces), "".join(pieces), Finish(FinishReason.LENGTH))
