"""Forced calls, walked token by token: whatever is chosen, the arguments are the tool's own."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.grammar.corpus import WRITTEN, Case, cases, cases_of
from tests.grammar.walks import Choose, at_random, for_schema, walk, worst
from tests.text.reply_kit import read
from trioserve.grammar.errors import GrammarError
from trioserve.text.tool_calls.forced_schema import forced_schema
from trioserve.text.tool_calls.json_list import ForcedCallParser

WAYS: tuple[Choose, ...] = (at_random(1, 150), at_random(2, 20), worst(150))


def takes_objects(case: Case) -> bool:
    return isinstance(case.schema, dict) and case.schema.get("type", "object") == "object"


def tools_of(case: Case) -> list[tuple[str, Any]]:
    """The case's tool beside one with definitions of the same names and one without parameters."""
    beside = {
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "required": ["a"],
        "$defs": {"a": {"const": "beside"}, "node": {"const": 1}},
    }
    return [("tool ✓", case.schema), ("beside", beside), ("bare", None)]


def assert_calls_fit(case: Case, max_calls: int | None) -> int:
    """Walk in each way; how many walks came to their end."""
    tools = tools_of(case)
    schemas = {
        name: schema if schema is not None else {"maxProperties": 0} for name, schema in tools
    }
    grammar = for_schema(json.dumps(forced_schema(tools, max_calls=max_calls)))
    num_finished = 0
    for choose in WAYS:
        found = walk(grammar, choose, most=600)
        text = found.text.decode(errors="ignore")
        got = read(ForcedCallParser(frozenset(schemas)), text)
        num_finished += found.is_finished
        assert got.num_complete <= (max_calls or len(text))
        for name, arguments in got.calls[: got.num_complete]:
            value = json.loads(arguments)
            assert isinstance(value, dict)
            Draft202012Validator(schemas[name]).validate(value)
        if found.is_finished:
            assert got.num_complete == len(got.calls) >= 1, text
            assert got.content == ""
    return num_finished


@pytest.mark.row("S-N-008")
def test_tools_written_here_are_called_with_arguments_that_validate() -> None:
    supported = [c for c in cases_of(WRITTEN) if takes_objects(c) and c.refusal is None]
    assert len(supported) >= 30
    num_finished = sum(assert_calls_fit(case, max_calls=1) for case in supported)
    assert num_finished >= 2 * len(supported)


def refusal_of(case: Case) -> str | None:
    """Why the tool cannot be forced; None if it can, and its calls fit."""
    try:
        assert_calls_fit(case, max_calls=None)
    except GrammarError as error:
        return error.detail
    return None


@pytest.mark.row("S-N-008")
def test_schemas_of_the_suite_are_refused_or_enforced_in_a_call_as_they_are_alone() -> None:
    of_suite = [
        c for c in cases() if c.keyword != WRITTEN and takes_objects(c) and c.refusal is None
    ]
    refusals = [refusal for case in of_suite if (refusal := refusal_of(case)) is not None]
    # Those allow no object at all.
    assert {refusal.partition(" for ")[0] for refusal in refusals} <= {"no document is valid"}
    assert len(of_suite) - len(refusals) >= 100
