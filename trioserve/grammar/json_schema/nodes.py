"""What a schema comes to: alternatives, each of one JSON type."""

from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum
from typing import Any

from attrs import evolve, field, frozen

Key = tuple[Any, ...]
"""Names a node: a place in the schema, or several that hold at once."""

ANYTHING: Key = ("anything",)
NOTHING: Key = ("nothing",)


class Said(IntEnum):
    """Whether the schema speaks of an alternative.

    `{"minLength": 2}` is valid for every number too, but whoever writes it wants a string. So what
    is only left open is not generated where something else is spoken of.
    """

    NOTHING = 0
    """The schema says nothing at all, as `{}`."""
    ELSEWHERE = 1
    """It speaks of other types alone."""
    HERE = 2


@frozen
class Literals:
    """Some values, as Python has them."""

    values: tuple[Any, ...]
    said: Said = Said.HERE


@frozen
class Numbers:
    """Numbers in a range."""

    is_integer: bool = False
    low: Decimal | None = None
    high: Decimal | None = None
    is_low_open: bool = False
    is_high_open: bool = False
    multiple: int | None = None
    said: Said = Said.HERE


@frozen
class Strings:
    """Strings that match every pattern and are so long."""

    low: int = 0
    high: int | None = None
    patterns: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    """Only those that are enforced."""
    excluded: frozenset[str] = frozenset()
    """Strings that are not valid."""
    said: Said = Said.HERE


@frozen
class Arrays:
    """Arrays: the first items, the rest, and how many."""

    first: tuple[Key, ...] = ()
    rest: Key = ANYTHING
    low: int = 0
    high: int | None = None
    is_rest_stated: bool = False
    said: Said = Said.HERE


@frozen
class Objects:
    """Objects by their properties; `others` is for those that are not named."""

    properties: Mapping[str, Key] = field(factory=dict)
    required: frozenset[str] = frozenset()
    others: Key = ANYTHING
    are_others_stated: bool = False
    patterns: tuple[tuple[str, Key], ...] = ()
    """For names that match, beside what else holds for them; not for `others` then."""
    names: Key = ANYTHING
    """For every name."""
    low: int = 0
    high: int | None = None
    said: Said = Said.HERE


Alternative = Literals | Numbers | Strings | Arrays | Objects


def with_said(alternative: Alternative, said: Said) -> Alternative:
    """The same, with another `said`."""
    return evolve(alternative, said=said)


def everything(said: Said = Said.NOTHING) -> list[Alternative]:
    """What `{}` comes to."""
    return [
        Literals((None, True, False), said),
        Numbers(said=said),
        Strings(said=said),
        Arrays(said=said),
        Objects(said=said),
    ]
