"""What is valid for two alternatives at once: exactly, or nothing at all."""

import re
from collections.abc import Iterable
from itertools import zip_longest
from math import lcm
from typing import Any, Protocol, TypeVar

from attrs import evolve

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.json_schema.nodes import (
    Alternative,
    Arrays,
    Key,
    Literals,
    Numbers,
    Objects,
    Strings,
    with_said,
)
from trioserve.grammar.json_schema.values import canonical, decimal, is_number

MAX_ALTERNATIVES = 256

N = TypeVar("N")


class Nodes(Protocol):
    """What the keys inside alternatives stand for; see `Schema`."""

    def alternatives(self, key: Key) -> list[Alternative]:
        """What is valid there."""

    def both(self, *keys: Key) -> Key:
        """What is valid for all of them."""

    def is_nothing(self, key: Key) -> bool:
        """Whether it is certain that no value is valid there."""


def meet_all(nodes: Nodes, a: list[Alternative], b: list[Alternative]) -> list[Alternative]:
    """Every pair of alternatives that has something in common."""
    met = [found for left in a for right in b if (found := meet(nodes, left, right)) is not None]
    if len(met) > MAX_ALTERNATIVES:
        raise GrammarError(TOO_COMPLEX)
    return met


def meet(nodes: Nodes, a: Alternative, b: Alternative) -> Alternative | None:
    """What is valid for both; None where that is certainly nothing."""
    said = max(a.said, b.said)
    if isinstance(b, Literals):
        a, b = b, a
    if isinstance(a, Literals):
        other = b
        values = tuple(value for value in a.values if accepts_one(nodes, other, value))
        return Literals(values, said) if values else None
    met: Alternative | None = None
    match a, b:
        case Numbers(), Numbers():
            met = _meet_numbers(a, b)
        case Strings(), Strings():
            met = Strings(
                max(a.low, b.low),
                _least(a.high, b.high),
                a.patterns | b.patterns,
                a.formats | b.formats,
                a.excluded | b.excluded,
            )
        case Arrays(), Arrays():
            pairs = zip_longest(a.first, b.first)
            met = Arrays(
                tuple(nodes.both(x or a.rest, y or b.rest) for x, y in pairs),
                nodes.both(a.rest, b.rest),
                max(a.low, b.low),
                _least(a.high, b.high),
                is_rest_stated=a.is_rest_stated or b.is_rest_stated,
            )
        case Objects(), Objects():
            met = _meet_objects(nodes, a, b)
    if met is None or is_empty(nodes, met):
        return None
    return with_said(met, said)


def is_empty(nodes: Nodes, alternative: Alternative) -> bool:
    """Whether it is certain that no value is valid for it."""
    match alternative:
        case Literals(values):
            return not values
        case Numbers(low=low, high=high):
            if low is None or high is None:
                return False
            is_open = alternative.is_low_open or alternative.is_high_open
            return low > high or (low == high and is_open)
        case Strings(low=low, high=high):
            return high is not None and low > high
        case Arrays(first=first, rest=rest, low=low, high=high):
            if high is not None and low > high:
                return True
            return any(
                nodes.is_nothing((*first, rest)[min(i, len(first))])
                for i in range(min(low, len(first) + 1))
            )
        case Objects(low=low, high=high, required=required):
            if high is not None and max(low, len(required)) > high:
                return True
            return any(
                nodes.is_nothing(property_key(nodes, alternative, name))
                or not accepts(nodes, alternative.names, name)
                for name in required
            )


def property_key(nodes: Nodes, objects: Objects, name: str) -> Key:
    """What holds for the value of one property."""
    keys = [key for pattern, key in objects.patterns if has_match(pattern, name)]
    if name in objects.properties:
        return nodes.both(objects.properties[name], *keys)
    return nodes.both(*keys) if keys else objects.others


def has_match(pattern: str, text: str) -> bool:
    """Whether a text has a match, as far as Python reads the pattern as it is meant."""
    try:
        return re.search(pattern, text) is not None
    except re.error as error:
        raise GrammarError(f"the pattern cannot be searched for: {error}") from error


def accepts(nodes: Nodes, key: Key, value: Any) -> bool:
    """Whether a value is valid there."""
    return any(accepts_one(nodes, each, value) for each in nodes.alternatives(key))


def accepts_one(nodes: Nodes, alternative: Alternative, value: Any) -> bool:
    """Whether a value is valid for an alternative. A format is none here, but an annotation."""
    match alternative:
        case Literals(values):
            return canonical(value) in {canonical(each) for each in values}
        case Numbers():
            return is_number(value) and _has_number(alternative, value)
        case Strings(low=low, high=high, patterns=patterns, excluded=excluded):
            return (
                isinstance(value, str)
                and low <= len(value)
                and (high is None or len(value) <= high)
                and value not in excluded
                and all(has_match(pattern, value) for pattern in patterns)
            )
        case Arrays(first=first, rest=rest, low=low, high=high):
            return (
                isinstance(value, list)
                and low <= len(value)
                and (high is None or len(value) <= high)
                and all(
                    accepts(nodes, key or rest, item)
                    for item, key in zip_longest(value, first[: len(value)])
                )
            )
        case Objects(required=required, names=names, low=low, high=high):
            return (
                isinstance(value, dict)
                and low <= len(value)
                and (high is None or len(value) <= high)
                and required <= value.keys()
                and all(
                    accepts(nodes, names, name)
                    and accepts(nodes, property_key(nodes, alternative, name), item)
                    for name, item in value.items()
                )
            )


def _has_number(numbers: Numbers, value: int | float) -> bool:
    number = decimal(value)
    if not number.is_finite():
        return False
    if (numbers.is_integer or numbers.multiple) and number != number.to_integral_value():
        return False
    if numbers.multiple and int(number) % numbers.multiple:
        return False
    low, high = numbers.low, numbers.high
    if low is not None and (number < low or (numbers.is_low_open and number == low)):
        return False
    return not (high is not None and (number > high or (numbers.is_high_open and number == high)))


def _meet_numbers(a: Numbers, b: Numbers) -> Numbers:
    low, high = a, a
    if a.low is None or (b.low is not None and (b.low, b.is_low_open) > (a.low, a.is_low_open)):
        low = b
    if a.high is None or (
        b.high is not None and (b.high, not b.is_high_open) < (a.high, not a.is_high_open)
    ):
        high = b
    multiples = [each.multiple for each in (a, b) if each.multiple is not None]
    return Numbers(
        a.is_integer or b.is_integer,
        low.low,
        high.high,
        low.is_low_open,
        high.is_high_open,
        lcm(*multiples) if multiples else None,
    )


def _meet_objects(nodes: Nodes, a: Objects, b: Objects) -> Objects:
    if (a.patterns and b.are_others_stated) or (b.patterns and a.are_others_stated):
        raise GrammarError(
            "patternProperties and additionalProperties of different subschemas cannot be combined"
        )
    names = _in_order(a.properties, b.properties)
    return Objects(
        {
            name: nodes.both(property_key(nodes, a, name), property_key(nodes, b, name))
            for name in names
        },
        a.required | b.required,
        nodes.both(a.others, b.others),
        a.are_others_stated or b.are_others_stated,
        (*a.patterns, *b.patterns),
        nodes.both(a.names, b.names),
        max(a.low, b.low),
        _least(a.high, b.high),
    )


def closed(nodes: Nodes, objects: Objects, others: Key) -> Objects:
    """With `unevaluatedProperties`: it holds for what no subschema that is valid speaks of.

    A `not` speaks of nothing, whatever properties it names.
    """
    properties = {
        name: nodes.both(key, others) if _is_of_not_alone(key) else key
        for name, key in objects.properties.items()
    }
    if not objects.are_others_stated:
        others = nodes.both(objects.others, others)
        return evolve(objects, properties=properties, others=others, are_others_stated=True)
    return evolve(objects, properties=properties)


def _is_of_not_alone(key: Key) -> bool:
    return key[0] == "not" or (key[0] == "all" and all(each[0] == "not" for each in key[1]))


def _in_order(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for each in names for name in each))


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
