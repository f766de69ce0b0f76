"""The schema that a forced call has to fit: what it allows is what the tools' own schemas allow."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.text.reply_kit import read
from trioserve.text.tool_calls.forced_schema import forced_schema
from trioserve.text.tool_calls.json_list import ForcedCallParser

TREE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/tree",
    "properties": {
        "root": {"$ref": "#/$defs/node"},
        "$ref": {"type": "string"},
        "again": {"$ref": "#/properties/root"},
        "self": {"$ref": "#"},
        "named": {"$ref": "#a_node"},
        "by_id": {"$ref": "https://example.com/tree#/$defs/node"},
        "odd": {"$ref": "#odd"},
        "word": {"enum": [{"$ref": "#/$defs/none"}, "b"]},
    },
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "a/b~ č": {"$anchor": "odd", "type": "integer"},
        "node": {
            "$anchor": "a_node",
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
        },
    },
}
COLOUR = {
    "type": "object",
    "properties": {"c": {"$ref": "#/$defs/node"}},
    "$defs": {"node": {"const": 1}},
}
TOOLS = [("tree", TREE), ("colour", COLOUR), ("now", None)]


def call(name: str, parameters: Any) -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


@pytest.mark.parametrize(
    ("reply", "is_valid"),
    [
        ([call("tree", {"root": {"next": {"next": None}}})], True),
        ([call("tree", {"root": {"next": 5}})], False),
        ([call("tree", {})], False),
        ([call("tree", [])], False),
        ([call("tree", {"root": {"next": None}, "$ref": "a"})], True),
        ([call("tree", {"root": {"next": None}, "$ref": 5})], False),
        ([call("tree", {"root": {"next": None}, "again": {"next": None}})], True),
        ([call("tree", {"root": {"next": None}, "again": 5})], False),
        ([call("tree", {"root": {"next": None}, "self": {"root": {"next": None}}})], True),
        ([call("tree", {"root": {"next": None}, "self": {}})], False),
        ([call("tree", {"root": {"next": None}, "named": {"next": None}})], True),
        ([call("tree", {"root": {"next": None}, "named": {}})], False),
        ([call("tree", {"root": {"next": None}, "by_id": {"next": None}})], True),
        ([call("tree", {"root": {"next": None}, "by_id": {}})], False),
        ([call("tree", {"root": {"next": None}, "odd": 5})], True),
        ([call("tree", {"root": {"next": None}, "odd": "5"})], False),
        ([call("tree", {"root": {"next": None}, "word": {"$ref": "#/$defs/none"}})], True),
        ([call("colour", {"c": 1})], True),
        ([call("colour", {"c": {"next": None}})], False),
        ([call("now", {})], True),
        ([call("now", {"a": 1})], False),
        ([call("now", {}), call("colour", {"c": 1})], True),
        ([call("other", {})], False),
        ([{"name": "now"}], False),
        ([], False),
        (call("now", {}), False),
    ],
)
def test_a_reply_fits_if_each_call_fits_its_tool(reply: Any, is_valid: bool) -> None:
    schema = forced_schema(TOOLS, max_calls=None)
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(reply) is is_valid
    if is_valid:
        names = frozenset(name for name, _ in TOOLS)
        found = read(ForcedCallParser(names), json.dumps(reply))
        assert [call(name, json.loads(given)) for name, given in found.calls] == reply


def test_as_many_calls_fit_as_are_allowed() -> None:
    reply = [call("now", {})] * 3
    for most, is_valid in ((None, True), (3, True), (1, False)):
        schema = forced_schema([("now", None)], max_calls=most)
        assert Draft202012Validator(schema).is_valid(reply) is is_valid


def test_the_tools_own_schemas_are_not_changed() -> None:
    before = json.dumps(TREE)
    forced_schema(TOOLS, max_calls=1)
    assert json.dumps(TREE) == before
