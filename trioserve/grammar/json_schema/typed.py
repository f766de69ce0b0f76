"""The keywords of one type alone, as an alternative of that type."""

from decimal import Decimal
from typing import Any

from trioserve.grammar.errors import GrammarError
from trioserve.grammar.json_schema.formats import ENFORCED_FORMATS
from trioserve.grammar.json_schema.keywords import refused
from trioserve.grammar.json_schema.nodes import ANYTHING, Arrays, Numbers, Objects, Said, Strings
from trioserve.grammar.json_schema.references import Place
from trioserve.grammar.json_schema.values import decimal
from trioserve.grammar.regular.pattern import parse_pattern


def numbers_of(schema: dict[str, Any], is_integer: bool, said: Said, place: Place) -> Numbers:
    low, is_low_open = _bound(schema, "minimum", "exclusiveMinimum", 1)
    high, is_high_open = _bound(schema, "maximum", "exclusiveMaximum", -1)
    multiple = schema.get("multipleOf")
    if multiple is not None and not float(multiple).is_integer():
        raise refused("multipleOf", place, "must be an integer to be supported")
    whole = None if multiple is None else int(multiple)
    return Numbers(is_integer, low, high, is_low_open, is_high_open, whole, said)


def _bound(
    schema: dict[str, Any], closed_name: str, open_name: str, sign: int
) -> tuple[Decimal | None, bool]:
    bounds = [
        (decimal(schema[name]), is_open)
        for name, is_open in ((closed_name, False), (open_name, True))
        if name in schema
    ]
    if not bounds:
        return None, False
    return max(bounds, key=lambda bound: (sign * bound[0], bound[1]))


def strings_of(schema: dict[str, Any], said: Said, place: Place) -> Strings:
    patterns = frozenset({schema["pattern"]} if "pattern" in schema else ())
    for pattern in patterns:
        try:
            parse_pattern(pattern, is_search=True)
        except GrammarError as error:
            raise refused("pattern", place, f"cannot be enforced: {error.detail}") from error
    return Strings(
        int(schema.get("minLength", 0)),
        _count(schema, "maxLength"),
        patterns,
        ENFORCED_FORMATS & {schema.get("format", "")},
        said=said,
    )


def arrays_of(schema: dict[str, Any], said: Said, place: Place) -> Arrays:
    first = [
        ("at", (*place, "prefixItems", str(i))) for i in range(len(schema.get("prefixItems", ())))
    ]
    return Arrays(
        tuple(first),
        ("at", (*place, "items")) if "items" in schema else ANYTHING,
        int(schema.get("minItems", 0)),
        _count(schema, "maxItems"),
        is_rest_stated="items" in schema,
        said=said,
    )


def objects_of(schema: dict[str, Any], said: Said, place: Place) -> Objects:
    patterns = [
        (pattern, ("at", (*place, "patternProperties", pattern)))
        for pattern in schema.get("patternProperties", ())
    ]
    for pattern, _ in patterns:
        try:
            parse_pattern(pattern, is_search=True)
        except GrammarError as error:
            why = f"cannot be enforced: {error.detail}"
            raise refused("patternProperties", place, why) from error
    has_others = "additionalProperties" in schema
    return Objects(
        {name: ("at", (*place, "properties", name)) for name in schema.get("properties", ())},
        frozenset(schema.get("required", ())),
        ("at", (*place, "additionalProperties")) if has_others else ANYTHING,
        has_others,
        tuple(patterns),
        ("at", (*place, "propertyNames")) if "propertyNames" in schema else ANYTHING,
        int(schema.get("minProperties", 0)),
        _count(schema, "maxProperties"),
        said,
    )


def _count(schema: dict[str, Any], keyword: str) -> int | None:
    return int(schema[keyword]) if keyword in schema else None
