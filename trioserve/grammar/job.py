"""`CompileJob`: one compilation, as the compiler gives it to a worker."""

from attrs import define, field

from trioserve.grammar.constraint import Constraint


@define(eq=False)
class CompileJob:
    """Given away once; `cpu_s` is written by the worker."""

    constraint: Constraint
    message: bytes
    """The constraint and how to read it, for the child."""
    cpu_s: float | None = field(init=False, default=None)
    """Processor time that it had before it was cut off; None if that is not known."""
