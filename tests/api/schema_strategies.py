"""Hypothesis strategies from our own JSON Schemas, which use a small part of the language."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

Schema = Mapping[str, Any]

# Surrogates alone are no Unicode text, and JSON refuses them.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(-1e9, 1e9) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)


def valid_for(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that fit the schema."""
    if "anyOf" in schema:
        return st.one_of(*map(valid_for, schema["anyOf"]))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "type" not in schema:
        return ANY_JSON
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of(*(_OF_TYPE[kind](schema) for kind in types))


def invalid_for(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that do not fit the schema; null always does for an optional field."""
    validator = Draft202012Validator(dict(schema))
    return (ANY_JSON | _near(schema)).filter(lambda value: not validator.is_valid(value))


def _near(schema: Schema) -> st.SearchStrategy[Any]:
    """Numbers around the bounds, and arrays and objects of what does fit."""
    kinds = (schema, *schema.get("anyOf", ()))
    bounds = [kind[key] for kind in kinds for key in ("minimum", "maximum") if key in kind]
    beside = st.sampled_from([bound + step for bound in bounds for step in (-1, 1)] or [0])
    fitting = valid_for(schema)
    return beside | st.lists(fitting, max_size=2) | st.dictionaries(_TEXT, fitting, max_size=2)


def _numbers(schema: Schema) -> st.SearchStrategy[float]:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    return st.floats(
        low if above is None else above,
        schema.get("maximum"),
        exclude_min=above is not None,
        allow_nan=False,
        allow_infinity=False,
    )


def _integers(schema: Schema) -> st.SearchStrategy[float]:
    # A parser that has 64 bits rounds larger ones.
    low = schema.get("minimum", -(2**63))
    high = schema.get("maximum", 2**63 - 1)
    exact = st.integers(low, high)
    return exact | exact.filter(lambda value: float(value) == value).map(float)


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    least = max(schema.get("minLength", 0), 1 if "pattern" in schema else 0)
    texts = st.text(
        st.characters(exclude_categories=["Cs"]),
        min_size=least,
        max_size=min(20, schema.get("maxLength", 20)),
    )
    if "pattern" not in schema:
        return texts
    assert schema["pattern"] == r"\S", f"no strategy for the pattern {schema['pattern']}"
    return texts.filter(str.strip)


def _arrays(schema: Schema) -> st.SearchStrategy[list[Any]]:
    return st.lists(
        valid_for(schema.get("items", {})),
        min_size=schema.get("minItems", 0),
        max_size=min(3, schema.get("maxItems", 3)),
    )


def _objects(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    properties = schema.get("properties", {})
    needed = set(schema.get("required", ()))
    named = st.fixed_dictionaries(
        {name: valid_for(properties[name]) for name in properties if name in needed},
        optional={name: valid_for(properties[name]) for name in properties if name not in needed},
    )
    if "propertyNames" in schema:
        names = st.integers(0, 10**4).map(str)
        return st.dictionaries(names, valid_for(schema["additionalProperties"]), max_size=3)
    others = schema.get("additionalProperties", {})
    unknown = st.dictionaries(_TEXT, valid_for(others), max_size=1)
    return st.builds(lambda more, own: {**more, **own}, unknown, named)


_OF_TYPE = {
    "null": lambda schema: st.none(),
    "boolean": lambda schema: st.booleans(),
    "integer": _integers,
    "number": _numbers,
    "string": _texts,
    "array": _arrays,
    "object": _objects,
}
