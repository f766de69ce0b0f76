"""xgrammar's bits as numpy has them."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import xgrammar

    from trioserve.grammar.vocabulary import Vocabulary

Words = npt.NDArray[np.int32]
Bits = npt.NDArray[np.uint8]


def new_words(num_ids: int) -> Words:
    """[1, words]: a bit for each token."""
    return np.zeros((1, -(-num_ids // 32)), np.int32)


def fill_bits(matcher: "xgrammar.GrammarMatcher", words: Words, num_ids: int) -> Bits:
    """[tokens], 1 for those that may come next; `words` is overwritten."""
    matcher.fill_next_token_bitmask(words)
    # Beyond the vocabulary it leaves bits that are set.
    return np.unpackbits(words.view(np.uint8)[0], bitorder="little", count=num_ids)


def first_bits(compiled: "xgrammar.CompiledGrammar", vocabulary: "Vocabulary") -> Bits:
    """The tokens that a text may begin with, the end among them if it may be empty."""
    matcher = new_matcher(compiled, vocabulary)
    return fill_bits(matcher, new_words(vocabulary.num_ids), vocabulary.num_ids)


def new_matcher(
    compiled: "xgrammar.CompiledGrammar", vocabulary: "Vocabulary"
) -> "xgrammar.GrammarMatcher":
    """At the beginning of a text."""
    import xgrammar

    return xgrammar.GrammarMatcher(compiled, override_stop_tokens=list(vocabulary.eos_ids) or None)
