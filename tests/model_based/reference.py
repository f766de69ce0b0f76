"""What a sequence comes to when it is alone: the reference of every history."""

import re
from functools import cache

from attrs import frozen

from trioserve.core import Finish, FinishReason, StopParams
from trioserve.testing.fake_readout import LETTERS, next_token
from trioserve.testing.fake_text import EOS_ID

VOCABULARY = (*LETTERS, EOS_ID)
POISON = ord("!")


@frozen
class Outcome:
    """All that a choice comes to when nothing disturbs it."""

    token_ids: tuple[int, ...]
    """All tokens, the one that ends the choice included."""
    text: str
    finish: Finish

    @property
    def num_tokens(self) -> int:
        """Tokens billed."""
        return len(self.token_ids)

    def text_of(self, num_tokens: int) -> str:
        """All text of the first tokens, as an abort after them leaves it: nothing is held back."""
        return "".join(map(_text_of, self.token_ids[:num_tokens]))


@cache
def one_at_a_time(
    prompt: tuple[int, ...],
    sample_index: int,
    max_tokens: int,
    stop: StopParams,
    poison: int | None = POISON,
) -> Outcome | None:
    """The reference: one sequence alone, a token at a time, no pages. None: it fails.

    It knows patterns only where no match can come early.
    """
    assert not (stop.regexes and stop.min_tokens), "early matches of patterns are not followed here"
    if poison in prompt:
        return None
    end_ids = stop.token_ids if stop.is_eos_ignored else stop.token_ids | {EOS_ID}
    allowed = tuple(token for token in VOCABULARY if token not in end_ids)
    tokens: list[int] = []
    text = early_text = ""
    while len(tokens) < max_tokens:
        prefix = (*prompt, *tokens)
        token = next_token(prefix, sample_index, VOCABULARY)
        if token in end_ids and len(tokens) < stop.min_tokens:
            token = next_token(prefix, sample_index, allowed)
        tokens.append(token)
        if token in end_ids:
            whole = text + _text_of(token) if stop.is_kept else text
            return Outcome(tuple(tokens), whole, Finish(FinishReason.STOP, token))
        text += _text_of(token)
        if len(tokens) < stop.min_tokens:
            early_text = text
        elif found := _find_stop(text, len(early_text), stop):
            start, _, end, matched = found
            cut = text[: end if stop.is_kept else start]
            return Outcome(tuple(tokens), cut, Finish(FinishReason.STOP, matched))
    return Outcome(tuple(tokens), text, Finish(FinishReason.LENGTH))


def _find_stop(text: str, num_early: int, stop: StopParams) -> tuple[int, int, int, str] | None:
    """The first stop that is not complete within the early characters: start, rank, end, stop."""
    patterns = [*map(re.escape, stop.strings), *stop.regexes]
    found = [
        (match.start(), rank, match.end(), named)
        for rank, (pattern, named) in enumerate(
            zip(patterns, (*stop.strings, *stop.regexes), strict=True)
        )
        for start in range(len(text))
        if (match := re.compile(pattern).match(text, start)) and match.end() > num_early
    ]
    return min(found, default=None)


def _text_of(token: int) -> str:
    return "" if token == EOS_ID else chr(token)
