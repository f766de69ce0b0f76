"""The official test suite and schemas of our own: what is enforced is valid, others are refused."""

import json

import pytest
from jsonschema import Draft202012Validator

from tests.grammar.corpus import KEYWORDS, WRITTEN, Case, cases, cases_of
from tests.grammar.walks import Choose, at_random, for_schema, walk, worst
from trioserve.grammar.json_schema.keywords import ENFORCED, IN_PART, REFUSED
from trioserve.grammar.json_schema.meet import accepts
from trioserve.grammar.json_schema.schema import Schema

WALKS: list[Choose] = [
    *(worst(25), worst(60, 1), at_random(1, 20), at_random(2, 50)),
    # Some of these end even where a pattern hides what leads to an end.
    *(at_random(seed, 0) for seed in range(3, 8)),
]

STRICTER = {
    ("unevaluatedItems", "unevaluatedItems can see annotations from if without then and else"),
    ("unevaluatedProperties", "unevaluatedProperties with anyOf"),
    (
        "unevaluatedProperties",
        "unevaluatedProperties can see annotations from if without then and else",
    ),
    # Its own vocabulary makes keywords of assertions; they are enforced all the same.
    ("vocabulary", "schema that uses custom metaschema with with no validation vocabulary"),
}
"""Schemas for which some valid values are never generated."""


def check_walks(case: Case) -> int:
    """Walk through a supported case: how many walks came to an end, all of them valid."""
    grammar = for_schema(case.source)
    validator = Draft202012Validator(case.schema)
    num_finished = 0
    for choose in WALKS:
        walked = walk(grammar, choose)
        if walked.is_finished:
            num_finished += 1
            value = json.loads(walked.text)
            assert validator.is_valid(value), (case.description, case.source, walked.text)
    return num_finished


@pytest.mark.row("S-C-021")
@pytest.mark.case(85)
@pytest.mark.parametrize("keyword", KEYWORDS)
def test_what_is_generated_to_its_end_is_valid(keyword: str) -> None:
    """Case 85, for an adversary and for chance: every keyword is enforced, or refused."""
    for case in cases_of(keyword):
        if case.refusal is None:
            assert check_walks(case) > 0, f"no walk came to an end: {case.description}"


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_schema_is_read_as_its_standard_means_it(keyword: str) -> None:
    """The instances of the suite: nothing that is not valid is ever accepted."""
    for case in cases_of(keyword):
        if case.refusal is not None:
            continue
        schema = Schema(case.schema)
        for value, is_valid in case.instances:
            is_accepted = accepts(schema, ("at", ()), value)
            is_stricter = (keyword, case.description) in STRICTER
            assert is_accepted == is_valid or (is_stricter and is_valid), (case, value)


@pytest.mark.case(85)
def test_a_refusal_names_the_keyword_and_where_it_stands() -> None:
    known = (*ENFORCED, *REFUSED, "$id", "the opposite of", "no value is valid")
    refused = [case for case in cases() if case.refusal is not None]
    for case in refused:
        assert case.refusal is not None
        assert case.refusal.startswith(known), (case.description, case.refusal)
        assert " at #" in case.refusal, case.refusal


def test_enough_schemas_are_supported() -> None:
    supported = [case for case in cases() if case.refusal is None]
    written = [case for case in supported if case.keyword == WRITTEN]
    assert len(cases()) >= 300
    assert len(supported) >= 0.7 * len(cases())
    assert len(cases_of(WRITTEN)) == 50
    assert len(written) >= 48


def test_every_keyword_is_enforced_refused_or_an_annotation() -> None:
    assert not set(ENFORCED) & set(REFUSED)
    assert set(IN_PART) <= set(ENFORCED)
    annotations = {"title", "description", "default", "examples", "deprecated", "readOnly"}
    named = {name for case in cases() for name in _keywords_in(case.schema)}
    core = {"$defs", "definitions", "$schema", "$id", "$anchor", "$comment"}
    assert {"contains", "minLength", "$ref"} <= named
    assert not (set(ENFORCED) | set(REFUSED)) & (annotations | core)


def _keywords_in(schema: object) -> set[str]:
    if isinstance(schema, list):
        return {name for item in schema for name in _keywords_in(item)}
    if not isinstance(schema, dict):
        return set()
    return {*schema, *(name for item in schema.values() for name in _keywords_in(item))}
