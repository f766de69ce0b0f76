"""Sets of tokens, packed as xgrammar has them: a few kilobytes each."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import xgrammar

    from trioserve.grammar.vocabulary import Vocabulary

Words = npt.NDArray[np.uint32]
"""[words]: bit i % 32 of word i // 32 is token i's."""


def no_tokens(num_ids: int) -> Words:
    """The empty set."""
    return np.zeros(-(-num_ids // 32), np.uint32)


def add_tokens(words: Words, ids: Iterable[int]) -> None:
    """Put each id in."""
    for token_id in ids:
        words[token_id >> 5] |= np.uint32(1 << (token_id & 31))


def remove_tokens(words: Words, ids: Iterable[int]) -> None:
    """Take each id out."""
    for token_id in ids:
        words[token_id >> 5] &= ~np.uint32(1 << (token_id & 31))


def has_token(words: Words, token_id: int) -> bool:
    """Whether the id is in it."""
    return bool(words[token_id >> 5] >> np.uint32(token_id & 31) & np.uint32(1))


def fill_next(matcher: "xgrammar.GrammarMatcher", words: Words) -> None:
    """Overwrite `words` with the tokens that may come next.

    The end is among them if the text may end; so is what lies beyond the vocabulary.
    """
    matcher.fill_next_token_bitmask(words.view(np.int32)[np.newaxis])


def first_tokens(compiled: "xgrammar.CompiledGrammar", vocabulary: "Vocabulary") -> Words:
    """The tokens that a text may begin with, the end among them if it may be empty."""
    words = no_tokens(vocabulary.num_ids)
    fill_next(new_matcher(compiled, vocabulary), words)
    allowed = vocabulary.text_tokens.copy()
    add_tokens(allowed, vocabulary.eos_ids)
    return words & allowed


def new_matcher(
    compiled: "xgrammar.CompiledGrammar", vocabulary: "Vocabulary"
) -> "xgrammar.GrammarMatcher":
    """At the beginning of a text."""
    import xgrammar

    return xgrammar.GrammarMatcher(compiled, override_stop_tokens=list(vocabulary.eos_ids) or None)
