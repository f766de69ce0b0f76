"""The keywords of JSON schemas: which there are, and what their values must be."""

from collections.abc import Callable
from typing import Any

from trioserve.grammar.errors import GrammarError
from trioserve.grammar.json_schema.references import Place, shown
from trioserve.grammar.json_schema.values import is_number

TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")

OF_TYPE: dict[str, str] = {
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "format": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "maxItems": "array",
    "uniqueItems": "array",
    "unevaluatedItems": "array",
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "patternProperties": "object",
    "propertyNames": "object",
    "minProperties": "object",
    "maxProperties": "object",
    "dependentRequired": "object",
    "dependentSchemas": "object",
    "unevaluatedProperties": "object",
}
"""Keywords that speak of one type alone."""

OF_ANY_TYPE = (
    "type",
    "enum",
    "const",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
)

ENFORCED = (*OF_TYPE, *OF_ANY_TYPE)

REFUSED = (
    "contains",
    "$dynamicRef",
    "$recursiveRef",
    "additionalItems",
    "dependencies",
    "divisibleBy",
    "disallow",
    "extends",
)
"""Constraints of this or an older draft that are not enforced, and so are not taken."""

IN_PART = (
    "$ref",
    "if",
    "minProperties",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "propertyNames",
    "uniqueItems",
)
"""Enforced in some schemas and refused in others; the messages say when."""


def refused(keyword: str, place: Place, why: str = "is not supported") -> GrammarError:
    """A keyword that cannot be enforced where it stands."""
    return GrammarError(f"{keyword} at {shown(place)} {why}")


def check_keywords(schema: dict[str, Any], place: Place) -> None:
    """Raise GrammarError for a keyword that is not enforced, or whose value is none for it."""
    for keyword in REFUSED:
        if keyword in schema:
            raise refused(keyword, place)
    if place and "$id" in schema:
        raise refused("$id", place, "is not supported inside a schema")
    for keyword, (is_valid, must) in _VALUES.items():
        if keyword in schema and not is_valid(schema[keyword]):
            raise refused(keyword, place, f"must be {must}")
    if (pair := schema.get("uniqueItems")) and pair is True:
        most = schema.get("maxItems")
        if not (isinstance(most, int | float) and most <= 1):
            raise refused("uniqueItems", place)


def types_of(schema: dict[str, Any], place: Place) -> tuple[str, ...]:
    """The value of `type`; empty if there is none."""
    value = schema.get("type", [])
    types = value if isinstance(value, list) else [value]
    for each in types:
        if each not in TYPES:
            raise refused("type", place, f"must be one of {', '.join(TYPES)}, or an array of them")
    if "type" in schema and not types:
        raise refused("type", place, "must not be empty")
    return tuple(types)


def _is_count(value: Any) -> bool:
    return is_number(value) and value >= 0 and float(value).is_integer()


def _is_schema(value: Any) -> bool:
    return isinstance(value, bool | dict)


def _is_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_schemas_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_names_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_names, value.values()))


def _is_enum(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_multiple(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


_COUNT = (_is_count, "a non-negative integer")
_NUMBER = (is_number, "a number")
_SCHEMA = (_is_schema, "an object or a boolean")
_SCHEMAS = (_is_schemas, "an array of schemas")
_BY_NAME = (_is_schemas_by_name, "an object of schemas")
_TEXT = (_is_text, "a string")

_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "pattern": _TEXT,
    "format": _TEXT,
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": (_is_multiple, "a number greater than 0"),
    "items": _SCHEMA,
    "prefixItems": _SCHEMAS,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "uniqueItems": (_is_boolean, "a boolean"),
    "unevaluatedItems": _SCHEMA,
    "properties": _BY_NAME,
    "required": (_is_names, "an array of strings"),
    "additionalProperties": _SCHEMA,
    "patternProperties": _BY_NAME,
    "propertyNames": _SCHEMA,
    "minProperties": _COUNT,
    "maxProperties": _COUNT,
    "dependentRequired": (_is_names_by_name, "an object of arrays of strings"),
    "dependentSchemas": _BY_NAME,
    "unevaluatedProperties": _SCHEMA,
    "enum": (_is_enum, "an array that is not empty"),
    "allOf": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "not": _SCHEMA,
    "if": _SCHEMA,
    "then": _SCHEMA,
    "else": _SCHEMA,
}
