"""A regular expression as a tree."""

from collections.abc import Iterable

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


def either_of(options: Iterable[Tree]) -> Tree:
    """One of them, of which there is at least one; single characters are one set."""
    others: list[Tree] = []
    ranges: list[tuple[int, int]] = []
    has_chars = False
    for option in options:
        if isinstance(option, Chars):
            has_chars = True
            ranges += option.chars
        else:
            others.append(option)
    if has_chars:
        others.insert(0, Chars(charset.charset(ranges)))
    return others[0] if len(others) == 1 else Either(tuple(others))


def num_places(tree: Tree) -> int:
    """How many sets of characters it has, each as often as it may be counted."""
    match tree:
        case Chars():
            return 1
        case Concat(parts) | Either(parts):
            return sum(map(num_places, parts))
        case Repeat(part, low, high):
            return num_places(part) * max(1, low if high is None else high)


def lengths(tree: Tree) -> tuple[int, int | None]:
    """The fewest and the most characters of its texts; None is without limit."""
    match tree:
        case Chars():
            return 1, 1
        case Concat(parts):
            pairs = [lengths(part) for part in parts]
            longest = [high for _, high in pairs]
            most = None if None in longest else sum(high or 0 for high in longest)
            return sum(low for low, _ in pairs), most
        case Either(options):
            pairs = [lengths(option) for option in options]
            longest = [high for _, high in pairs]
            most = None if None in longest else max(high or 0 for high in longest)
            return min(low for low, _ in pairs), most
        case Repeat(part, low, high):
            shortest, longest_part = lengths(part)
            if longest_part == 0:
                return 0, 0
            if high is None or longest_part is None:
                return shortest * low, (0 if high == 0 else None)
            return shortest * low, longest_part * high


def is_of_one_length(tree: Tree) -> bool:
    """Whether all its texts are equally long."""
    shortest, longest = lengths(tree)
    return shortest == longest
