"""Stop patterns: found as on the whole text, never shown and taken back, never slow without end."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioserve.errors import RequestError
from trioserve.text import regex_stops
from trioserve.text.regex_stops import RegexFinder, SearchBudget
from trioserve.text.stops import StopFinder

if TYPE_CHECKING:
    from collections.abc import Callable

# Few letters and short pieces, so that patterns match often, and across the pieces' borders.
PIECES = st.lists(st.text("ab c\n", max_size=4), max_size=14)
STRINGS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=2)

PATTERNS = [
    *(r"ab", r"a+b", r"(?:ab)+", r"b{2,3}a", r"a|abc", r"abc|b", r"[ab]\s", r".*c", r"(?s)a.*c"),
    *(r"(a|b)*\n", r"(a)\1b", r"(?i)AB", r"a(?=b)", r"a(?!b)c", r"ab$", r"a\b", r"\bab"),
    *(r"^ab", r"(?m)^b", r"\Aa", r"(?<=b)a", r"(?<!a)b", r"(?<=^ab)c", r"(?<=a.*)c"),
    *(r"(?:abc)?", r"a*", r"(?=ab)", r"(a*)b?", r"(?:aab)*?", r"(?:ab|abcab)c?", r"\w+ \w"),
]
# What these find is not settled by the text before a start and after it.
BACKWARD = [r"(?r)ab+", r"(?r)a(?=b)", r"a\Kb", r"\Ga", r"a(b\Kc|b b)"]
# These fail at the end of the text for want of more.
BLIND = [r"a\B", r" \b", r"a(?!\Z)"]


def run(
    strings: list[str],
    patterns: list[str],
    pieces: list[str],
    min_tokens: int = 0,
    is_kept: bool = False,
) -> tuple[list[str], str | None, int]:
    """What is shown after each piece (and at the end), the stop, and the number of pieces used."""
    regexes = RegexFinder(tuple(patterns), SearchBudget()) if patterns else None
    finder = StopFinder(strings, patterns, regexes, is_kept=is_kept)
    shown = []
    for num_used, piece in enumerate(pieces, start=1):
        found = finder.feed(piece, is_early=num_used < min_tokens)
        shown.append(found.text)
        if found.matched_stop is not None:
            return shown, found.matched_stop, num_used
    return [*shown, finder.flush()], None, len(pieces)


def search_naively(
    strings: list[str], patterns: list[str], pieces: list[str], min_tokens: int, is_kept: bool
) -> tuple[str, str | None, int]:
    """The same by looking at all the text from every start after each piece."""
    compiled = [regex.compile(pattern) for pattern in patterns]
    text = early_text = ""
    spent: set[tuple[int, int]] = set()
    for num_used, piece in enumerate(pieces, start=1):
        text += piece
        is_early = num_used < min_tokens
        early_text = text if is_early else early_text
        found = []
        for rank, string in enumerate(strings):
            for start in range(len(text)):
                end = start + len(string)
                if text.startswith(string, start) and end > len(early_text):
                    found.append((start, rank, end, string))
        for rank, pattern in enumerate(compiled):
            for start in range(len(text)):
                match = pattern.match(text, start)
                if match is None or match.end() == start or (rank, start) in spent:
                    continue
                if is_early and piece:
                    spent.add((rank, start))
                elif piece:
                    found.append((start, len(strings) + rank, match.end(), patterns[rank]))
        if found and not is_early:
            start, _, end, stop = min(found)
            return text[: end if is_kept else start], stop, num_used
    return text, None, len(pieces)


@settings(max_examples=400, deadline=None)
@given(
    strings=STRINGS,
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3),
    pieces=PIECES,
    min_tokens=st.sampled_from([0, 0, 2, 3, 5, 8]),
    is_kept=st.booleans(),
)
@example(["ab"], ["abc|b"], ["a", "b"], 3, False)
@example([], ["abc|b"], ["a", "b", "c"], 3, False)
@example([], ["abc|b"], ["a", "b", "a", "b"], 3, False)
@example([], ["a+b"], ["ab", "a", "b"], 2, True)
@example([], ["(?:abc)?"], ["a", "b", "c"], 0, False)
@example(["aba"], [], ["aba", "ba"], 2, False)
def test_any_split_gives_what_a_search_of_all_text_gives(
    strings: list[str], patterns: list[str], pieces: list[str], min_tokens: int, is_kept: bool
) -> None:
    shown, stop, num_used = run(strings, patterns, pieces, min_tokens, is_kept)
    expected = search_naively(strings, patterns, pieces, min_tokens, is_kept)
    assert ("".join(shown), stop, num_used) == expected


@settings(deadline=None)
@given(
    pattern=st.sampled_from(BACKWARD + BLIND),
    pieces=PIECES,
    min_tokens=st.sampled_from([0, 3]),
    is_kept=st.booleans(),
)
def test_no_pattern_takes_back_what_was_shown(
    pattern: str, pieces: list[str], min_tokens: int, is_kept: bool
) -> None:
    shown, stop, num_used = run([], [pattern], pieces, min_tokens, is_kept)
    text = "".join(pieces[:num_used])
    assert text.startswith("".join(shown))
    if stop is None:
        assert "".join(shown) == text
    elif is_kept:
        assert any(
            match.end() == len("".join(shown))
            for match in regex.finditer(pattern, text, overlapped=True)
        )


@pytest.mark.parametrize("pattern", BACKWARD)
@settings(deadline=None)
@given(pieces=PIECES)
def test_patterns_that_look_back_match_as_on_the_whole_text(
    pattern: str, pieces: list[str]
) -> None:
    shown, stop, num_used = run([], [pattern], pieces)
    for num_pieces in range(1, len(pieces) + 1):
        text = "".join(pieces[:num_pieces])
        match = regex.search(pattern, text)
        if match is not None:
            assert ("".join(shown), stop, num_used) == (text[: match.start()], pattern, num_pieces)
            return
    assert stop is None


@pytest.mark.parametrize(
    ("pattern", "pieces", "shown"),
    [
        (r"\d{3}-\d{4}", ["call ", "55", "5-", "12", " now"], ["call ", "", "", "", "555-12 now"]),
        (r"\n\n\w+:", ["a\n", "\nUser", " b"], ["a", "", "\n\nUser b"]),
        (r"cat|category x", ["a c", "a", "r"], ["a ", "", "car"]),
        (r"(?<=x)yz", ["xy", "y", "z"], ["x", "yy", "z"]),
    ],
)
def test_only_what_may_still_become_a_match_is_held_back(
    pattern: str, pieces: list[str], shown: list[str]
) -> None:
    assert run([], [pattern], pieces)[0] == [*shown, ""]


@pytest.mark.row("S-C-036")
def test_a_match_across_pieces_ends_the_text_before_it() -> None:
    assert run([], [r"\n+\w+:"], ["Hi.\n", "\nUs", "er: x"]) == (["Hi.", "", ""], r"\n+\w+:", 3)


def test_a_match_counts_as_soon_as_there_is_one() -> None:
    assert run([], [r"ab+"], ["xab", "b"]) == (["x"], r"ab+", 1)
    assert run([], [r"ab+"], ["xabb"], is_kept=True) == (["xabb"], r"ab+", 1)
    assert run([], [r"abcd|b"], ["a", "b"]) == (["", "a"], r"abcd|b", 2)


def test_strings_come_before_patterns_and_patterns_in_their_order() -> None:
    assert run(["ab"], [r"a"], ["xab"])[1] == "ab"
    assert run(["b"], [r"ab"], ["xab"])[1] == r"ab"
    assert run([], [r"ab", r"a."], ["xab"])[1] == r"ab"
    assert run([], [r"a.", r"ab"], ["xab"])[1] == r"a."


def test_an_empty_match_is_none() -> None:
    assert run([], [r"x*"], ["ab", "c"]) == (["ab", "c", ""], None, 2)
    assert run([], [r"$"], ["ab"]) == (["ab", ""], None, 1)
    assert run([], [r"x*"], ["ab", "cx"]) == (["ab", "c"], r"x*", 2)


def test_an_early_match_never_counts_and_one_that_only_begins_early_does() -> None:
    assert run([], [r"ab"], ["ab", "c", "d"], min_tokens=2) == (["ab", "c", "d", ""], None, 3)
    assert run([], [r"abc"], ["ab", "c"], min_tokens=2) == (["", ""], r"abc", 2)
    assert run([], [r"ab+"], ["ab", "b"], min_tokens=2) == (["ab", "b", ""], None, 2)
    assert run(["ab"], [], ["ab", "ab"], min_tokens=2) == (["ab", ""], "ab", 2)


def test_early_matches_are_forgotten_once_the_search_has_passed_them() -> None:
    finder = RegexFinder((r"\w",), SearchBudget())
    for _ in range(1000):
        assert finder.feed("abc", is_early=True) is None
    assert finder.first_live == 3000
    assert not finder._searches[0]._spent


CATASTROPHES = [
    (r"(?:a|a)*[bd]", [*("a" * 60 + "c")]),
    (r"(?:a|a)*b", [*("a" * 3000 + "c" * 3000)]),
    (r"(a+)+$", [("a" * 40 + "b") * 80]),
    (r"(\w|\d|[a-z])*+[!?]", [*("a" * 20_000)]),
    (r".*.*.*.*[xy]", [*("a" * 5000)]),
    (r"(?:\w+\s*)+[:;]", ["word "] * 300),
    (r"(.+)\1\1[xz]", [*("a" * 5000)]),
    (r"((a{0,99}){0,99}){0,99}[bd]", [*("a" * 300 + "c")]),
    (r"(?:foo){e<=5}bar[xy]", ["fofofo" * 2000]),
    (r"(?:aab|a)*?[xy]", [*("a" * 20_000)]),
    (r"(?r)[bd](?:a|a)*", [*("a" * 60)]),
]


def feed_all(finder: RegexFinder, pieces: list[str], is_early: bool) -> None:
    for piece in pieces:
        assert finder.feed(piece, is_early) is None


@pytest.mark.row("S-C-036")
@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize(("pattern", "pieces"), CATASTROPHES, ids=[row[0] for row in CATASTROPHES])
def test_a_catastrophic_pattern_ends_with_an_error(
    pattern: str, pieces: list[str], is_early: bool
) -> None:
    finder = RegexFinder((pattern,), SearchBudget())
    with pytest.raises(RequestError, match="Invalid request: stop_regex takes too long") as refused:
        feed_all(finder, pieces, is_early)
    assert refused.value.code == "stop_regex_timeout"
    assert refused.value.param == "stop_regex"


@pytest.mark.parametrize("pattern", [r".*foo", r"a+b", r"(?:foo|bar)\d", r"(?i)user\s*:", r"x*"])
def test_an_ordinary_pattern_does_not_use_up_its_budget(pattern: str) -> None:
    finder = RegexFinder((pattern,), SearchBudget())
    pieces = itertools.islice(itertools.cycle(["word ", "fo ", "aa a"]), 3000)
    assert not any(finder.feed(piece, is_early=False) for piece in pieces)


class Clock:
    """Time that passes only when a search spends it."""

    def __init__(self) -> None:
        self.thread_s = 0.0
        self.wall_s = 0.0
        self.granted: list[float] = []

    def search(self, takes_s: float, *, num_busy_threads: int = 1) -> Callable[..., str]:
        """A search that needs so much of its thread's time; the process's runs faster."""

        def run(text: str, start: int, *, timeout: float, **_: object) -> str:
            self.granted.append(timeout)
            used_s = min(takes_s, timeout / num_busy_threads)
            self.thread_s += used_s
            self.wall_s += used_s
            if used_s < takes_s:
                raise TimeoutError
            return text[start:]

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    time = SimpleNamespace(thread_time=lambda: clock.thread_s, monotonic=lambda: clock.wall_s)
    monkeypatch.setattr(regex_stops, "time", time)
    return clock


def spend(budget: SearchBudget, search: Callable[..., str]) -> None:
    budget.begin()
    try:
        assert budget.run(search, "text", 1) == "ext"
    finally:
        budget.end()


def test_a_search_gets_what_is_left_of_the_budget(clock: Clock) -> None:
    budget = SearchBudget()
    spend(budget, clock.search(0.020))
    spend(budget, clock.search(0.010))
    expected = [0.050, 0.030 + budget.REFILL_S]
    assert clock.granted == pytest.approx(expected)


def test_what_a_token_adds_lasts_for_ever(clock: Clock) -> None:
    budget = SearchBudget()
    for _ in range(1000):
        spend(budget, clock.search(budget.REFILL_S))
    spend(budget, clock.search(budget.CAPACITY_S - budget.REFILL_S))


def test_slow_searches_use_the_budget_up(clock: Clock) -> None:
    budget = SearchBudget()
    overdraft_s = 0.005
    for _ in range(round(budget.CAPACITY_S / overdraft_s) - 1):
        spend(budget, clock.search(budget.REFILL_S + overdraft_s))
    with pytest.raises(RequestError):
        spend(budget, clock.search(budget.REFILL_S + 2 * overdraft_s))


def test_a_search_cut_short_because_other_threads_compute_is_begun_again(clock: Clock) -> None:
    spend(SearchBudget(), clock.search(0.010, num_busy_threads=8))
    assert len(clock.granted) > 1


def test_a_search_that_never_ends_is_given_up_however_busy_other_threads_are(clock: Clock) -> None:
    budget = SearchBudget()
    with pytest.raises(RequestError):
        spend(budget, clock.search(1e9, num_busy_threads=8))
    assert clock.thread_s == pytest.approx(budget.CAPACITY_S)
    clock.granted.clear()
    with pytest.raises(RequestError):
        spend(SearchBudget(), clock.search(1e9, num_busy_threads=10**9))
    assert sum(clock.granted) < 10**9


def test_choices_of_a_request_share_one_budget(clock: Clock) -> None:
    budget = SearchBudget()
    spend(budget, clock.search(0.049))
    first = RegexFinder(("a",), budget)
    clock.thread_s += 1.0  # not a search: other work of the thread is not counted
    assert first.feed("xa", is_early=False) is not None
    with pytest.raises(RequestError):
        spend(budget, clock.search(0.049))
