"""`CompileJob`: one compilation, on its way from the compiler through a worker to a child."""

import json

from attrs import define, field

from trioserve.grammar.constraint import Constraint, GrammarKind


@define(eq=False)
class CompileJob:
    """Given away once; `cpu_s` is written by the worker."""

    constraint: Constraint
    max_spaces: int
    """In a row, where JSON has whitespace."""
    cpu_s: float | None = field(init=False, default=None)
    """Processor time that it had before it was cut off; None if that is not known."""

    @classmethod
    def from_json(cls, text: bytes) -> "CompileJob":
        """What `to_json` gave."""
        kind, source, max_spaces = json.loads(text)
        return cls(Constraint(GrammarKind(kind), source), max_spaces)

    def to_json(self) -> bytes:
        """For another process."""
        return json.dumps([self.constraint.kind, self.constraint.source, self.max_spaces]).encode()
