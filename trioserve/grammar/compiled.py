"""`CompiledGrammar`: what the choices of a request follow; shared, and never changed."""

from typing import TYPE_CHECKING

from attrs import field, frozen

from trioserve.grammar.matching import first_tokens
from trioserve.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    import xgrammar


@frozen(eq=False)
class CompiledGrammar:
    """Made by the compiler; `GrammarState` walks through it, one for each choice."""

    vocabulary: Vocabulary = field(repr=False)
    compiled: "xgrammar.CompiledGrammar" = field(repr=False)
    num_bytes: int
    is_end_alone: bool
    """It allows no token at all, but the empty text: a choice has ended before it began."""

    @classmethod
    def from_serialized(cls, text: bytes, vocabulary: Vocabulary) -> "CompiledGrammar":
        """What the worker sent. Takes up to half a second: not on the event loop."""
        import xgrammar

        compiled = xgrammar.CompiledGrammar.deserialize_json(text.decode(), vocabulary.info)
        # xgrammar counts its masks, and not the states of its rules, which may be ten times as
        # large. Both together are, within a third, by how much a process has been seen to grow.
        return cls.of(compiled, vocabulary, compiled.memory_size_bytes + len(text))

    @classmethod
    def of(
        cls, compiled: "xgrammar.CompiledGrammar", vocabulary: Vocabulary, num_bytes: int = 0
    ) -> "CompiledGrammar":
        """What xgrammar compiled for the vocabulary, in this process or another one.

        `num_bytes` is what it counts for where it is kept.
        """
        first = first_tokens(compiled, vocabulary) & vocabulary.text_tokens
        return cls(vocabulary, compiled, num_bytes, not first.any())
