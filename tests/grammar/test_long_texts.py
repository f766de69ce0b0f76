"""Texts whose characters are counted: exact at the bound, and cheap far from it."""

import json
import re
from itertools import product

import pytest

from tests.grammar.walks import allowed, at_random, compiled, for_schema, walk, worst
from trioserve.grammar.compilation import compile_constraint, new_compiler
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import GrammarError
from trioserve.grammar.regular.automaton import SMALL
from trioserve.grammar.state import GrammarState
from trioserve.grammar.vocabulary import Vocabulary
from trioserve.testing.fake_text import EOS_ID

MANY = SMALL + 6
"""More than are told apart, so that they are counted in another way."""


def after(grammar_of: Constraint, text: bytes) -> set[int]:
    """What may follow the text, whose tokens must all be allowed."""
    state = GrammarState(compiled(grammar_of), frozenset({EOS_ID}))
    for byte in text:
        assert byte in allowed(state), (text, byte)
        state.accept(byte)
    return {EOS_ID} if state.is_finished else set(allowed(state))


@pytest.mark.parametrize(
    ("pattern", "begin", "char", "end"),
    [
        (f"[ab]{{3,{MANY}}}", b"", b"a", b""),
        (f"[ab]{{{MANY},{MANY + 9}}}", b"", b"b", b""),
        (f"[ab]{{{MANY}}}", b"", b"a", b""),
        (f"(a|b){{0,{MANY}}}", b"", b"b", b""),
        (f"x[ab]{{0,{MANY}}}", b"x", b"a", b""),
        (f"[ab]{{0,{MANY}}}[xy]", b"", b"a", b"x"),
        (f"(?:x[ab]{{1,{MANY}}}|yes)", b"x", b"b", b""),
        (f"(?:[ab]{{0,{MANY}}},)*", b"", b"a", b","),
        (f"[é中]{{1,{MANY}}}", b"", "é".encode(), b""),
    ],
)
def test_as_many_characters_as_a_pattern_counts_and_no_more(
    pattern: str, begin: bytes, char: bytes, end: bytes
) -> None:
    constraint = Constraint(GrammarKind.REGEX, pattern)
    end_id = end[0] if end else EOS_ID
    for count in (0, 1, 2, 3, MANY - 1, MANY, MANY + 8, MANY + 9):
        text = begin + count * char
        if not re.fullmatch(pattern, (text + end).decode()):
            continue
        may_follow = after(constraint, text)
        assert end_id in may_follow, count
        is_more_allowed = re.fullmatch(pattern, (text + char + end).decode()) is not None
        assert (char[0] in may_follow) == is_more_allowed, count


@pytest.mark.parametrize("low", [0, 1, 40, MANY])
@pytest.mark.parametrize("high", [MANY, MANY + 5, 200])
def test_a_string_ends_within_its_bounds(low: int, high: int) -> None:
    grammar = for_schema(json.dumps({"type": "string", "minLength": low, "maxLength": high}))
    for choose in (worst(500), *(at_random(seed, 500) for seed in range(8))):
        walked = walk(grammar, choose, 4 * high)
        assert walked.is_finished
        assert low <= len(json.loads(walked.text)) <= high


@pytest.mark.parametrize("last", ["a", '\\"', "\\n"])
def test_a_string_may_be_as_long_as_it_is_allowed_to(last: str) -> None:
    """Also if the last of its characters is an escape."""
    source = json.dumps({"type": "string", "maxLength": MANY})
    text = '"' + (MANY - 1) * "b" + last
    assert after(Constraint(GrammarKind.JSON_SCHEMA, source), text.encode()) == {ord('"')}


def test_a_text_may_not_be_shorter_than_it_has_to() -> None:
    source = json.dumps({"type": "string", "minLength": 100})
    constraint = Constraint(GrammarKind.JSON_SCHEMA, source)
    assert ord('"') not in after(constraint, b'"' + 99 * b"a")
    assert {ord('"'), ord("a")} <= after(constraint, b'"' + 100 * b"a")
    assert {ord('"'), ord("a")} <= after(constraint, b'"' + 5000 * b"a")


def test_a_pattern_that_no_text_matches_is_refused() -> None:
    with pytest.raises(GrammarError):
        compiled(Constraint(GrammarKind.REGEX, r"a[^\s\S]"))


WORDS = Vocabulary(
    (
        *(bytes([byte]) for byte in range(256)),
        *(
            "".join(chars).encode()
            for size in (2, 3, 4)
            for chars in product("ghijklmn", repeat=size)
        ),
        *(b'"' + rest for rest in (b",", b', "', b":", b"}", b"]")),
        b"",
    ),
    256 + 8**2 + 8**3 + 8**4 + 6,
    (256 + 8**2 + 8**3 + 8**4 + 5,),
)
"""Most tokens are of several letters, as a real model's are."""
STRINGS = [
    {},
    {"minLength": 1},
    {"maxLength": 40},
    {"maxLength": MANY},
    {"minLength": 1, "maxLength": 5000},
    {"pattern": "^[a-z ]+$"},
    {"pattern": "^.{0,200}$"},
    {"pattern": "a"},
    {"pattern": "^([a-z]+ )*[a-z]+$"},
    {"not": {"const": "abc"}},
]


@pytest.mark.parametrize("string", STRINGS, ids=json.dumps)
def test_tokens_are_judged_when_a_grammar_is_compiled_and_not_in_each_step(
    string: dict[str, object],
) -> None:
    """Judging all of a real vocabulary takes as long as a step of a small model."""
    schema = {"type": "array", "items": {"type": "string", **string}}
    constraint = Constraint(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    compiled_grammar = compile_constraint(new_compiler(WORDS), WORDS, constraint)
    states = json.loads(compiled_grammar.serialize_json())["adaptive_token_mask_cache"]
    most = max(len(mask["uncertain_indices"]) for _, mask in states)
    assert most < 0.02 * len(WORDS.tokens)
