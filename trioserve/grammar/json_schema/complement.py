"""What is valid for everything that a schema does not allow, where that can be said."""

from collections.abc import Iterator

from trioserve.grammar.errors import GrammarError
from trioserve.grammar.json_schema.meet import Nodes, meet_all
from trioserve.grammar.json_schema.nodes import (
    ANYTHING,
    NOTHING,
    Alternative,
    Arrays,
    Key,
    Literals,
    Numbers,
    Objects,
    Said,
    Strings,
    everything,
)
from trioserve.grammar.json_schema.values import canonical, decimal, is_number


def complement(nodes: Nodes, key: Key) -> list[Alternative]:
    """Exactly what is not valid there. Raises GrammarError where that cannot be said."""
    found = everything()
    for alternative in nodes.alternatives(key):
        found = meet_all(nodes, found, list(_outside(nodes, alternative)))
    return found


def _outside(nodes: Nodes, alternative: Alternative) -> Iterator[Alternative]:
    match alternative:
        case Literals(values):
            yield from _outside_literals(values)
            return
        case Numbers():
            yield from _outside_numbers(alternative)
        case Strings(low, high, patterns, _, excluded):
            # A format is an annotation: what does not have it is valid too.
            if patterns:
                raise _unsaid("pattern")
            if low:
                yield Strings(high=low - 1, said=Said.NOTHING)
            if high is not None:
                yield Strings(low=high + 1, said=Said.NOTHING)
            if excluded:
                yield Literals(tuple(sorted(excluded)), Said.NOTHING)
        case Arrays(first, rest, low, high):
            if first or rest != ANYTHING:
                raise _unsaid("items")
            if low:
                yield Arrays(high=low - 1, said=Said.NOTHING)
            if high is not None:
                yield Arrays(low=high + 1, said=Said.NOTHING)
        case Objects():
            yield from _outside_objects(nodes, alternative)
    kind = type(alternative)
    yield from (each for each in everything() if not isinstance(each, kind))


def _outside_literals(values: tuple[object, ...]) -> Iterator[Alternative]:
    if any(isinstance(value, list | dict) for value in values):
        raise _unsaid("an array or an object as a value")
    taken = {canonical(value) for value in values}
    kept = tuple(each for each in (None, True, False) if canonical(each) not in taken)
    if kept:
        yield Literals(kept, Said.NOTHING)
    texts = frozenset(value for value in values if isinstance(value, str))
    yield Strings(excluded=texts, said=Said.NOTHING)
    numbers = sorted({decimal(v) for v in values if is_number(v)})  # type: ignore[arg-type]
    for low, high in zip([None, *numbers], [*numbers, None], strict=True):
        yield Numbers(low=low, high=high, is_low_open=True, is_high_open=True, said=Said.NOTHING)
    yield Arrays(said=Said.NOTHING)
    yield Objects(said=Said.NOTHING)


def _outside_numbers(numbers: Numbers) -> Iterator[Alternative]:
    if numbers.is_integer or numbers.multiple is not None:
        raise _unsaid("integer or multipleOf")
    if numbers.low is not None:
        is_open = not numbers.is_low_open
        yield Numbers(high=numbers.low, is_high_open=is_open, said=Said.NOTHING)
    if numbers.high is not None:
        is_open = not numbers.is_high_open
        yield Numbers(low=numbers.high, is_low_open=is_open, said=Said.NOTHING)


def _outside_objects(nodes: Nodes, objects: Objects) -> Iterator[Alternative]:
    if objects.others != ANYTHING or objects.patterns or objects.names != ANYTHING:
        raise _unsaid("additionalProperties, patternProperties or propertyNames")
    for name in sorted(objects.required):
        yield Objects({name: NOTHING}, said=Said.NOTHING)
    for name, key in objects.properties.items():
        outside: Key = ("not", key)
        if not nodes.is_nothing(outside):
            yield Objects({name: outside}, frozenset({name}), said=Said.NOTHING)
    if objects.low:
        yield Objects(high=objects.low - 1, said=Said.NOTHING)
    if objects.high is not None:
        yield Objects(low=objects.high + 1, said=Said.NOTHING)


def _unsaid(what: str) -> GrammarError:
    return GrammarError(f"the opposite of {what} cannot be expressed")
