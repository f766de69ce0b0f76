"""Schemas that nobody wrote: whatever is supported is enforced."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.grammar.walks import at_random, for_schema, walk, worst
from trioserve.grammar.errors import GrammarError

NAMES = st.sampled_from(["a", "b", "c", "ab"])
NUMBERS = st.integers(-50, 50) | st.floats(-50, 50).map(lambda value: round(value, 2))
VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", 'é"', "ab"])
COUNTS = st.integers(0, 3)
# Also more than are told apart one by one.
LENGTHS = COUNTS | st.sampled_from([30, 64, 65, 70])
PATTERNS = st.sampled_from(
    [
        *("^a+$", "b", "^[a-c]{2,3}$", "^(a|bc)*$", "^[^a]", "\\d$", '^"?$'),
        *("^.{0,70}$", "^[a-c]{66,80}$", "^x.{0,66}\\d$"),
    ]
)

NUMERIC = {
    "minimum": NUMBERS,
    "maximum": NUMBERS,
    "exclusiveMinimum": NUMBERS,
    "exclusiveMaximum": NUMBERS,
    "multipleOf": st.integers(1, 12),
}
TEXTUAL = {"minLength": LENGTHS, "maxLength": LENGTHS, "pattern": PATTERNS}


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the keywords."""
    return st.fixed_dictionaries({}, optional=fields)


def typed(kind: str, fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Mostly with the type said."""
    said = st.sampled_from([{"type": kind}, {"type": kind}, {"type": [kind, "null"]}, {}])
    return st.builds(lambda first, rest: {**first, **rest}, said, some(fields))


SIMPLE = st.one_of(
    typed("integer", NUMERIC),
    typed("number", {name: NUMERIC[name] for name in NUMERIC if name != "multipleOf"}),
    typed("string", TEXTUAL),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda value: {"const": value}, VALUES),
    st.booleans(),
    st.just({}),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas that are made of others."""
    objects = {
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "required": st.lists(NAMES, unique=True, max_size=2),
        "additionalProperties": inner,
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        "propertyNames": typed("string", TEXTUAL),
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "unevaluatedProperties": st.booleans(),
    }
    arrays = {
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "minItems": COUNTS,
        "maxItems": COUNTS,
    }
    several = st.lists(inner, min_size=1, max_size=3)
    joined = {
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }
    return typed("object", objects) | typed("array", arrays) | some(joined)


SCHEMAS = st.recursive(SIMPLE, larger, max_leaves=8)


@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(SCHEMAS, st.integers(0, 1000))
def test_what_a_generated_schema_lets_end_is_valid(schema: Any, seed: int) -> None:
    try:
        grammar = for_schema(json.dumps(schema))
    except GrammarError:
        return
    validator = Draft202012Validator(schema)
    for choose in (worst(20, seed), at_random(seed, 25), at_random(seed, 200)):
        walked = walk(grammar, choose, most=400)
        if walked.is_finished:
            value = json.loads(walked.text)
            assert validator.is_valid(value), (json.dumps(schema), walked.text)
