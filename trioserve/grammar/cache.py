"""`GrammarCache`: compiled grammars by what they were compiled from, the least used out first."""

from collections import OrderedDict

from attrs import define, field

from trioserve.grammar.compiled import CompiledGrammar
from trioserve.grammar.constraint import Constraint
from trioserve.grammar.errors import GrammarError

MAX_BYTES = 128 * 1024 * 1024
_ENTRY_BYTES = 1024
"""What an entry takes beside its grammar."""

Outcome = CompiledGrammar | GrammarError


@define(eq=False)
class GrammarCache:
    """Bounded in bytes.

    Knows a constraint by its digest: the sources of refused ones would stay otherwise, and anybody
    may send as many as they like.
    """

    max_bytes: int = MAX_BYTES
    num_bytes: int = field(init=False, default=0)
    _outcomes: OrderedDict[bytes, tuple[Outcome, int]] = field(init=False, factory=OrderedDict)

    def get(self, constraint: Constraint) -> Outcome | None:
        """What came of it, if that is known."""
        key = constraint.digest()
        if key not in self._outcomes:
            return None
        self._outcomes.move_to_end(key)
        return self._outcomes[key][0]

    def put(self, constraint: Constraint, outcome: Outcome) -> None:
        """Keep it; one that is larger than the cache is not kept."""
        key, size = constraint.digest(), _ENTRY_BYTES
        if isinstance(outcome, CompiledGrammar):
            size += outcome.num_bytes
        if size > self.max_bytes:
            return
        if key in self._outcomes:
            self.num_bytes -= self._outcomes.pop(key)[1]
        self._outcomes[key] = (outcome, size)
        self.num_bytes += size
        while self.num_bytes > self.max_bytes:
            _, (_, freed) = self._outcomes.popitem(last=False)
            self.num_bytes -= freed

    def __len__(self) -> int:
        return len(self._outcomes)
