"""Sets of characters as sorted ranges of code points, and how a grammar writes them."""

from collections.abc import Iterable

CharSet = tuple[tuple[int, int], ...]
"""Ranges (first, last), in order and apart."""

LAST = 0x10FFFF


def charset(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """Any ranges, put in order and joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def of_chars(text: str) -> CharSet:
    """Each character of a text."""
    return charset((ord(char), ord(char)) for char in text)


def complement(chars: CharSet) -> CharSet:
    """All characters but these; surrogates are none."""
    gaps, begin = [], 0
    for first, last in chars:
        if first > begin:
            gaps.append((begin, first - 1))
        begin = last + 1
    if begin <= LAST:
        gaps.append((begin, LAST))
    return intersect(tuple(gaps), ANY)


def intersect(a: CharSet, b: CharSet) -> CharSet:
    """Characters in both."""
    return charset(
        (max(first, other_first), min(last, other_last))
        for first, last in a
        for other_first, other_last in b
        if max(first, other_first) <= min(last, other_last)
    )


def subtract(a: CharSet, b: CharSet) -> CharSet:
    """Characters of `a` that are not in `b`."""
    return intersect(a, complement(b))


def size(chars: CharSet) -> int:
    """How many characters."""
    return sum(last - first + 1 for first, last in chars)


# Surrogates are no characters: a grammar that allowed them would allow bytes that are no UTF-8.
ANY: CharSet = ((0, 0xD7FF), (0xE000, LAST))
DIGITS = charset([(ord("0"), ord("9"))])
WORD = charset([*DIGITS, (ord("a"), ord("z")), (ord("A"), ord("Z")), (ord("_"), ord("_"))])
SPACE = of_chars(" \t\n\r\f\v")
ASCII: CharSet = ((0, 0x7F),)
NEWLINES = of_chars("\n\r\u2028\u2029")


def write(chars: CharSet) -> str:
    """The set as a class of a grammar; it must not be empty."""
    assert chars, "an empty set of characters cannot be written"
    parts = [
        _escape(first) if first == last else f"{_escape(first)}-{_escape(last)}"
        for first, last in chars
    ]
    return f"[{''.join(parts)}]"


def write_text(text: str) -> str:
    """A literal text of a grammar."""
    return '"' + "".join(_escape(ord(char)) for char in text) + '"'


def _escape(code: int) -> str:
    char = chr(code)
    if (code < 0x80 and char.isalnum()) or char in " _,:{}.":
        return char
    # Not \x: xgrammar reads as many digits behind it as there are.
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
