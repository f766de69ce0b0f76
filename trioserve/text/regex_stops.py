"""Search for stop patterns in text that grows, within a budget of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import regex  # type: ignore[import-untyped]
from attrs import frozen

from trioserve.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_READS_BEHIND = (r"\G", r"\K")


class _Match(Protocol):
    """What is used of the package's match, which has no types."""

    partial: bool

    def start(self) -> int: ...

    def span(self) -> tuple[int, int]: ...


class SearchBudget:
    """Time for the pattern searches of one request, shared by all its choices: a token bucket.

    A backtracking search can take for ever, and it runs on the event loop. Each token that is
    searched adds `REFILL_S`, a hundred times what an ordinary pattern needs; searches take out what
    they used, and when the bucket is empty the request fails. So one request can hold others up
    once for `CAPACITY_S`, and after that for `REFILL_S` a token.

    What is taken out is the time of this thread. The package's own timeout counts the time of the
    whole process, which runs faster while other threads compute: a search that it stops although
    there is budget left is begun again with more. A limit on the time that goes by was rejected: on
    a busy machine it ends harmless searches, which were only waiting for a core.
    """

    CAPACITY_S = 0.05
    REFILL_S = 0.0005

    def __init__(self) -> None:
        self._left_s = self.CAPACITY_S
        self._began_at = 0.0

    def begin(self) -> None:
        """A token is about to be searched."""
        self._left_s = min(self.CAPACITY_S, self._left_s + self.REFILL_S)
        self._began_at = time.thread_time()

    def end(self) -> None:
        """The token has been searched, by any number of `run` calls."""
        self._left_s -= time.thread_time() - self._began_at

    def run(self, search: Callable[..., T], text: str, start: int) -> T:
        """`search(text, start)` of a compiled pattern. Raises RequestError out of budget."""
        share = 1.0
        while (left_s := self._left_s - (time.thread_time() - self._began_at)) > 0.0:
            try:
                return search(text, start, partial=True, concurrent=True, timeout=left_s * share)
            except TimeoutError:
                share *= 2.0
        raise RequestError(
            "Invalid request: stop_regex takes too long to search for in the generated text",
            param="stop_regex",
            code="stop_regex_timeout",
        )


@frozen
class RegexFound:
    """A match in the whole text: where it starts and ends, and the rank of its pattern."""

    start: int
    end: int
    rank: int


class RegexFinder:
    """Finds the first match of several patterns in one choice's text, as it grows.

    After each piece of text a match counts as soon as there is one: of several the one that starts
    first, at equal start that of the first pattern; a longer one is not waited for. A match that is
    found early is ignored, and so is every later match at the same start. An empty match is
    ignored: it would end the choice with nothing that a client could see.

    `first_live` is where the earliest match still to come may start: all before it is settled, is
    never searched again, and may be shown. That a start is settled is known from the package's
    partial matching, which tells where an attempt ran into the end of the text. What it cannot see
    is an assertion that fails at the end for want of text (`\\B`): such a match counts only if its
    start has not been shown by then.

    Lookbehind and anchors see the whole text. Patterns that match backwards or say where the match
    or the search begins (`(?r)`, `\\K`, `\\G`) have no start that is ever settled: they are
    searched for from the beginning each time and hold everything back.

    Patterns must compile. No method is a checkpoint.
    """

    def __init__(self, patterns: tuple[str, ...], budget: SearchBudget) -> None:
        # The package keeps what it has compiled, so a request's choices share it.
        self._searches = [_PatternSearch(regex.compile(pattern)) for pattern in patterns]
        self._budget = budget
        self._text = ""

    @property
    def first_live(self) -> int:
        """Where the earliest match still to come may start, in characters of the whole text."""
        return min(search.first_live for search in self._searches)

    def feed(self, piece: str, is_early: bool) -> RegexFound | None:
        """Take the next piece. Raises RequestError when the budget is used up."""
        if not piece:
            return None
        # Grown in place as long as nothing else refers to it; `self._text += piece` would copy it.
        text, self._text = self._text, ""
        text += piece
        self._text = text
        best: RegexFound | None = None
        self._budget.begin()
        try:
            for rank, search in enumerate(self._searches):
                span = search.advance(text, is_early, self._budget)
                if span is not None and (best is None or span[0] < best.start):
                    best = RegexFound(*span, rank)
        finally:
            self._budget.end()
        return best


class _PatternSearch:
    """One pattern in the growing text, searched from the first start that is not settled."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern
        self._is_ever_settled = not (
            pattern.flags & regex.REVERSE or any(sign in pattern.pattern for sign in _READS_BEHIND)
        )
        self.first_live = 0
        # Starts from `first_live` on whose match came early.
        self._spent: set[int] = set()

    def advance(self, text: str, is_early: bool, budget: SearchBudget) -> tuple[int, int] | None:
        """The first match that counts, or None after moving `first_live` on."""
        pattern = self._pattern
        first_live: int | None = None
        start = self.first_live
        while start <= len(text):
            # A whole match anywhere is preferred to an earlier one that runs into the end.
            match: _Match | None = budget.run(pattern.search, text, start)
            if match is None:
                break
            begin, end = match.span()
            if match.partial:
                first_live = begin if first_live is None else first_live
                break
            if begin < end and not is_early and begin not in self._spent:
                return begin, end
            if first_live is None and self._is_ever_settled:
                first_live = self._find_live(text, start, begin, begin == end, budget)
            if begin < end:
                self._spent.add(begin)
            start = begin + 1
        if self._is_ever_settled:
            self.first_live = len(text) if first_live is None else first_live
            if self._spent:
                self._spent = {begin for begin in self._spent if begin >= self.first_live}
        return None

    def _find_live(
        self, text: str, start: int, end: int, is_empty: bool, budget: SearchBudget
    ) -> int | None:
        """The first start before `end` from which a match runs into the end of the text.

        A whole match at `end` has hidden it. If that one is empty, more text may fill it.
        """
        pattern = self._pattern
        for position in range(start, end):
            if budget.run(pattern.match, text, position) is not None:
                return position
        if is_empty and end < len(text) and budget.run(pattern.fullmatch, text, end) is not None:
            return end
        return None
