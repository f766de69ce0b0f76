"""`schema_fault`: whether what a client sends as a JSON schema is one.

Looks at the shape of the keywords (draft 2020-12, and `definitions` and arrays in `items` of older
ones), not at what they mean together. Rejected: validating against the metaschema with the
`jsonschema` package, which takes most of a millisecond for each property, on the event loop, and
agents send a hundred properties with every request.
"""

from collections.abc import Callable, Iterator
from typing import Any

MAX_DEPTH = 100
"""Schemas are nested a dozen deep; what walks them later may recurse."""

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, str) and each in _TYPES for each in value)
    return isinstance(value, str) and value in _TYPES


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_array(value: Any) -> bool:
    return isinstance(value, list)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, "a type of JSON or an array of them"),
    "enum": (_is_array, "an array"),
    "required": (_is_strings, "an array of strings"),
    "multipleOf": (_is_positive, "a positive number"),
    "uniqueItems": (_is_boolean, "a boolean"),
    **dict.fromkeys(
        ("title", "description", "format", "pattern", "$ref", "$schema", "$id", "$anchor"),
        (_is_string, "a string"),
    ),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (_is_number, "a number")
    ),
    **dict.fromkeys(
        (
            *("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"),
            *("minProperties", "maxProperties"),
        ),
        (_is_count, "an integer of at least 0"),
    ),
}
_SCHEMA = frozenset(
    {
        *("additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems"),
        *("unevaluatedItems", "contains", "not", "if", "then", "else"),
    }
)
_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)


def schema_fault(schema: Any) -> str | None:
    """What is wrong with a schema, in a few words; None if nothing is. Never recurses."""
    if _is_too_deep(schema):
        return "it is nested too deeply"
    waiting = [("", schema)]
    while waiting:
        where, schema = waiting.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            return f"{where or 'it'} must be an object or a boolean"
        for key, value in schema.items():
            place = f"{where}.{key}" if where else key
            if key in _VALUES:
                is_valid, kind = _VALUES[key]
                if not is_valid(value):
                    return f"{place} must be {kind}"
            elif key in _SCHEMA or (key == "items" and not isinstance(value, list)):
                waiting.append((place, value))
            elif key in _SCHEMAS or key == "items":
                if not isinstance(value, list) or not (value or key == "items"):
                    return f"{place} must be an array of schemas"
                waiting += [(f"{place}[{i}]", inner) for i, inner in enumerate(value)]
            elif key in _NAMED_SCHEMAS:
                if not isinstance(value, dict):
                    return f"{place} must be an object"
                waiting += [(f"{place}.{name}", inner) for name, inner in value.items()]
    return None


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return False
    return True


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
