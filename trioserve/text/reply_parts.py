"""What a reply's text consists of once it is read: words, thoughts, and calls of tools.

`end` counts the characters of the choice's text up to and with the part; tokens that begin before
it belong to the part or to one before it.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Content:
    """What the client is told."""

    text: str
    end: int


@frozen
class Reasoning:
    """What the model thought before."""

    text: str
    end: int


@frozen
class CallBegun:
    """A call of a declared tool; what it is called with follows."""

    name: str
    end: int


@frozen
class CallArguments:
    """A piece of the arguments of the call that was begun last, as the model wrote them."""

    text: str
    end: int


ReplyPart = Content | Reasoning | CallBegun | CallArguments


def num_possible(text: str, marker: str) -> int:
    """Characters at the end of `text` that may be the beginning of `marker`, and not all of it."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
