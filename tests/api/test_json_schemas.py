"""Which JSON schemas of a tool's parameters are taken for one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from trioserve.api.schema.json_schemas import MAX_DEPTH, schema_fault

VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["string", "object", "x", 1, 0, -1, 2.5, 3.0, True, False, None, [], ["a"], ["null"], [1], {}]
)
KEYWORDS = st.sampled_from(
    [
        *("type", "enum", "const", "required", "multipleOf", "uniqueItems", "title", "description"),
        *("minimum", "exclusiveMaximum", "minLength", "maxItems", "minProperties", "$schema"),
        *("additionalProperties", "propertyNames", "not", "if", "items", "contains", "allOf"),
        *("anyOf", "prefixItems", "properties", "patternProperties", "$defs", "dependentSchemas"),
        *("default", "x-own", "pattern", "format", "$ref"),
    ]
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    VALUES,
    lambda inner: (
        st.dictionaries(KEYWORDS, inner, max_size=3)
        | st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(schema=SCHEMAS)
def test_what_is_taken_is_what_the_metaschema_takes(schema: Any) -> None:
    """But for what older drafts allow, and for the forms of references and patterns."""
    errors = list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema))
    if any(_is_left_out(error) for error in errors):
        return
    assert (schema_fault(schema) is None) is (not errors), errors


def _is_left_out(error: ValidationError) -> bool:
    """`required: ["a", "a"]`, `$ref: "x y"`, an array in `items`."""
    is_in_items = "items" in error.absolute_path
    return error.validator in ("uniqueItems", "format", "pattern") or is_in_items


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"items": [{"type": "string"}, 5]}, "items[1] must be an object or a boolean"),
        ({"allOf": []}, "allOf must be an array of schemas"),
        (
            {"$defs": {"a": {"minLength": -1}}},
            "$defs.a.minLength must be an integer of at least 0",
        ),
        ({"required": "a"}, "required must be an array of strings"),
        (5, "it must be an object or a boolean"),
        ({"type": []}, "type must be a type of JSON or an array of them"),
    ],
)
def test_a_fault_is_named_with_its_place(schema: Any, fault: str) -> None:
    assert schema_fault(schema) == fault


def test_depth_is_bounded_wherever_it_is() -> None:
    for key in ("not", "x-own", "const"):
        schema: Any = {}
        for _ in range(MAX_DEPTH - 1):
            schema = {key: schema}
        assert schema_fault(schema) is None
        assert schema_fault({key: schema}) == "it is nested too deeply"
