"""Patterns, against Python's own: what is generated matches, and what cannot be is refused."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grammar.walks import at_random, compiled, walk, worst
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import GrammarError
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.automaton import Automaton, automaton_of, both, other_than
from trioserve.grammar.regular.pattern import parse_pattern

PATTERNS = [
    r"\d{3}-\d{3}-\d{4}",
    r"(\(\d{3}\) |\d{3}-)?\d{3}",
    r"[A-Z][a-z]+( [A-Z][a-z]+){0,2}",
    r"^[^\d\s]{2,5}$",
    r"a|b|",
    r"(?:ab?c*)+?",
    r"[\w.+-]+@[\w-]+\.[a-z]{2,4}",
    r"\x41\u00e9\t[\]\\^-]",
    r"(?P<year>[12]\d{3})-(?<m>0[1-9]|1[0-2])".replace("(?<m>", "(?P<m>"),
    r"(?i)yes|no",
    r"\W\S\D",
    r".{3}",
    r"[a-c-]{2}x{0}y{2,}",
    r"x{a}",
]


@pytest.mark.row("S-C-023")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_whole_output_matches(pattern: str) -> None:
    grammar = compiled(Constraint(GrammarKind.REGEX, pattern))
    finished = [
        walked.text.decode()
        for choose in (worst(10), *(at_random(seed, 8) for seed in range(12)))
        if (walked := walk(grammar, choose)).is_finished
    ]
    assert finished
    for text in finished:
        assert re.fullmatch(pattern, text), text


@pytest.mark.case(76)
@pytest.mark.parametrize(
    ("pattern", "detail"),
    [
        ("(", "a missing ) at position 1"),
        (")", "an unbalanced parenthesis at position 0"),
        ("a)", "an unbalanced parenthesis at position 1"),
        ("[a", "a missing ] at position 2"),
        ("*a", "nothing to repeat at position 1"),
        ("a**", "nothing to repeat at position 2"),
        ("a{3,2}", "a repetition whose bounds are out of order at position 6"),
        ("[z-a]", "a range out of order at position 4"),
        (r"[\d-z]", "a range of sets at position 5"),
        (r"(a)\1", r"a backreference is not supported at position 5"),
        ("(?=a)", "lookahead is not supported at position 3"),
        ("(?<!a)b", "lookbehind is not supported at position 4"),
        (r"\bword", "a word boundary is not supported at position 2"),
        (r"\p{L}", "a Unicode property is not supported at position 2"),
        ("a$b", "an anchor in the middle is not supported at position 2"),
        ("(^a)", "an anchor inside a group is not supported at position 4"),
        ("a++", "a possessive quantifier is not supported at position 3"),
        ("(?>a)", "an atomic group is not supported at position 3"),
        ("[[:alpha:]]", "a POSIX class is not supported at position 2"),
        (r"\q", r"the escape \q is not supported at position 2"),
        ("\\", "an unfinished pattern at position 1"),
        (r"\ud800", "an escape that is no character at position 6"),
        ("a{99999}", "grammar is too complex"),
        ("(" * 200 + ")" * 200, "grammar is too complex"),
        ("a" * 9000, "grammar is too complex"),
    ],
)
def test_a_pattern_that_cannot_be_enforced_is_refused_by_name(pattern: str, detail: str) -> None:
    with pytest.raises(GrammarError) as refused:
        parse_pattern(pattern, is_search=False)
    assert refused.value.detail == detail


def matches(automaton: Automaton, text: str) -> bool:
    """Step by step."""
    if automaton.is_empty:
        return False
    state = 0
    for char in text:
        targets = [
            target
            for chars, target in automaton.moves[state]
            if any(first <= ord(char) <= last for first, last in chars)
        ]
        if not targets:
            return False
        (state,) = targets
    return state in automaton.ends


SMALL = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "[^a]", "."]),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])),
    ),
    max_leaves=5,
)
TEXTS = st.text("abc", max_size=6)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(SMALL, SMALL, TEXTS, st.sets(TEXTS, max_size=3))
def test_an_automaton_matches_what_python_matches(
    pattern: str, other: str, text: str, excluded: set[str]
) -> None:
    first = automaton_of(parse_pattern(pattern, is_search=False))
    second = automaton_of(parse_pattern(other, is_search=True))
    is_first = re.fullmatch(pattern, text) is not None
    is_second = re.search(other, text) is not None
    assert matches(first, text) == is_first
    assert matches(second, text) == is_second
    assert matches(both(first, second), text) == (is_first and is_second)
    assert matches(other_than(excluded), text) == (text not in excluded)


@given(st.sets(st.integers(0, 0x10FFFF), max_size=8), st.sets(st.integers(0, 200), max_size=8))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_sets_of_characters_are_sets(a: set[int], b: set[int]) -> None:
    surrogates = set(range(0xD800, 0xE000))
    left, right = charset.charset((i, i) for i in a), charset.charset((i, i) for i in b)

    def members(chars: charset.CharSet) -> set[int]:
        return {code for first, last in chars for code in range(first, last + 1)}

    assert members(left) == a
    assert members(charset.intersect(left, right)) == a & b
    assert members(charset.subtract(left, right)) == a - b - surrogates
    outside = charset.complement(left)
    assert charset.size(outside) == 0x110000 - len(surrogates | a)
    assert not members(charset.intersect(outside, left))
