"""Which places have a value at all: what can never be ended must not be begun."""

from collections.abc import Iterator

from trioserve.grammar.json_schema.meet import Nodes, accepts, is_empty, property_key
from trioserve.grammar.json_schema.nodes import (
    NOTHING,
    Alternative,
    Arrays,
    Key,
    Literals,
    Numbers,
    Objects,
    Strings,
)


def find_inhabited(nodes: Nodes, root: Key) -> frozenset[Key]:
    """The keys, of all that `root` leads to, for which a finite value is valid.

    `{"properties": {"next": {"$ref": "#"}}, "required": ["next"]}` has none.
    """
    leads_to: dict[Key, set[Key]] = {root: set()}
    todo = [root]
    for key in todo:
        for alternative in nodes.alternatives(key):
            for inner in keys_in(alternative):
                leads_to[key].add(inner)
                if inner not in leads_to:
                    leads_to[inner] = set()
                    todo.append(inner)
    inhabited: set[Key] = set()
    has_grown = True
    while has_grown:
        has_grown = False
        for key in leads_to.keys() - inhabited:
            if any(can_be_written(nodes, each, inhabited) for each in nodes.alternatives(key)):
                inhabited.add(key)
                has_grown = True
    return frozenset(inhabited)


def keys_in(alternative: Alternative) -> Iterator[Key]:
    """Every key that an alternative may lead to."""
    match alternative:
        case Arrays(first, rest):
            yield from (*first, rest)
        case Objects():
            yield from alternative.properties.values()
            yield from (alternative.others, alternative.names)
            yield from (key for _, key in alternative.patterns)


def can_be_written(
    nodes: Nodes, alternative: Alternative, inhabited: frozenset[Key] | set[Key]
) -> bool:
    """Whether the keys that are known to be inhabited are enough for a value."""
    match alternative:
        case Literals() | Numbers() | Strings():
            return not is_empty(nodes, alternative)
        case Arrays(first, rest, low):
            if is_empty(nodes, alternative):
                return False
            needed = [first[i] if i < len(first) else rest for i in range(min(low, len(first) + 1))]
            return all(key in inhabited for key in needed)
        case Objects():
            if is_empty(nodes, alternative):
                return False
            return all(
                is_inhabited(nodes, property_key(nodes, alternative, name), inhabited)
                and accepts(nodes, alternative.names, name)
                for name in alternative.required
            )


def is_inhabited(nodes: Nodes, key: Key, inhabited: frozenset[Key] | set[Key]) -> bool:
    """Also for a key that only property_key made: several conditions on one property."""
    if key in inhabited:
        return True
    if key == NOTHING or key[0] != "all":
        return False
    # Not among the keys that were found, which hold one condition each.
    return any(can_be_written(nodes, each, inhabited) for each in nodes.alternatives(key))
