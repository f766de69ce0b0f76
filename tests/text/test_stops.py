"""The stop finder against a search that looks at all the text after every piece."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioserve.text.stops import StopFinder

# Few letters, so that stops overlap each other and themselves.
PIECES = st.lists(st.text("ab", max_size=5), max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4)


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None, int]:
    """What is shown after each piece (and at the end), the stop, and the number of pieces used."""
    finder = StopFinder(stops)
    shown = []
    for num_used, piece in enumerate(pieces, start=1):
        found = finder.feed(piece)
        shown.append(found.text)
        if found.matched_stop is not None:
            return shown, found.matched_stop, num_used
    return [*shown, finder.flush()], None, len(pieces)


def search_naively(stops: list[str], pieces: list[str]) -> tuple[str, str | None, int]:
    text = ""
    for num_used, piece in enumerate(pieces, start=1):
        text += piece
        starts = [(text.find(stop), rank) for rank, stop in enumerate(stops) if stop in text]
        if starts:
            start, rank = min(starts)
            return text[:start], stops[rank], num_used
    return text, None, len(pieces)


def longest_possible_stop(stops: list[str], text: str) -> int:
    return max(
        length
        for stop in stops
        for length in range(len(stop))
        if length == 0 or text.endswith(stop[:length])
    )


@given(stops=STOPS, pieces=PIECES)
@example(stops=["aab"], pieces=["aa", "ab"])
@example(stops=["ababb"], pieces=["abab", "abb"])
@example(stops=["ab", "a"], pieces=["ab"])
@example(stops=["b", "abb"], pieces=["abb"])
def test_any_split_gives_what_a_search_of_all_text_gives(
    stops: list[str], pieces: list[str]
) -> None:
    shown, stop, num_used = run(stops, pieces)
    assert ("".join(shown), stop, num_used) == search_naively(stops, pieces)


@given(stops=STOPS, pieces=PIECES)
def test_exactly_the_longest_possible_beginning_of_a_stop_is_held_back(
    stops: list[str], pieces: list[str]
) -> None:
    shown, _, num_used = run(stops, pieces)
    text = ""
    for index, piece in enumerate(pieces[: num_used - 1]):
        text += piece
        num_held = longest_possible_stop(stops, text)
        assert "".join(shown[: index + 1]) == text[: len(text) - num_held]


def test_earliest_start_wins_and_at_equal_start_the_first_listed() -> None:
    assert run(["cd", "bcd"], ["abcde"]) == (["a"], "bcd", 1)
    assert run(["ab", "abc"], ["xabcx"]) == (["x"], "ab", 1)
    assert run(["abc", "ab"], ["xabcx"]) == (["x"], "abc", 1)


def test_a_stop_that_never_completes_is_given_back_at_the_end() -> None:
    assert run(["\n\nUser:"], ["Hello", "\n", "\nUse"]) == (["Hello", "", "", "\n\nUse"], None, 3)


def test_after_a_match_nothing_is_left_to_flush() -> None:
    finder = StopFinder(["<end>"])
    assert finder.feed("x<e").text == "x"
    assert finder.feed("nd>tail").text == ""
    assert finder.flush() == ""
    with pytest.raises(AssertionError, match="after a stop was found"):
        finder.feed("more")


def test_an_empty_stop_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="empty stop"):
        StopFinder(["a", ""])


def test_a_huge_stop_costs_only_what_text_matches_of_it() -> None:
    finder = StopFinder(["a" * 1_000_000 + "b"])
    assert finder.feed("xyz").text == "xyz"
    assert len(finder._matchers[0]._borders) == 2
    assert finder.feed("aaa").text == ""
    assert len(finder._matchers[0]._borders) <= 5


class CountingText(str):
    """Counts how often one of its characters is looked at."""

    __slots__ = ("num_reads",)

    def __getitem__(self, index: object) -> str:
        self.num_reads = getattr(self, "num_reads", 0) + 1
        return super().__getitem__(index)  # type: ignore[index]


def test_text_is_read_once_however_long_it_has_become() -> None:
    finder = StopFinder(["aaab"])
    piece = CountingText("aa" * 4)
    reads = []
    for _ in range(50):
        piece.num_reads = 0
        finder.feed(piece)
        reads.append(piece.num_reads)
    assert set(reads) == {len(piece)}
