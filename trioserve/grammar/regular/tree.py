"""A regular expression as a tree."""

from attrs import frozen

from trioserve.grammar.regular import charset
from trioserve.grammar.regular.charset import CharSet


@frozen
class Chars:
    """One character of a set, which is empty only where nothing matches."""

    chars: CharSet


@frozen
class Concat:
    """One after the other; nothing at all if there are none."""

    parts: tuple["Tree", ...]


@frozen
class Either:
    """One of them."""

    options: tuple["Tree", ...]


@frozen
class Repeat:
    """Between `low` and `high` times; None is without limit."""

    part: "Tree"
    low: int
    high: int | None


Tree = Chars | Concat | Either | Repeat

ANY_TEXT = Repeat(Chars(charset.ANY), 0, None)
