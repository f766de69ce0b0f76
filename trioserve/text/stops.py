"""Search for stop strings and patterns in text that arrives piece by piece."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trioserve.text.regex_stops import RegexFinder


@frozen
class Found:
    """What one piece of text led to: text that may be shown, and the stop that ended it, if any."""

    text: str
    matched_stop: str | None


class StopFinder:
    """Finds the first stop in a choice's text and holds back what may become one.

    Feed it the text of one token at a time. After each piece all stops that are complete by then
    compete: the earliest start wins, at equal start the first listed, strings before patterns. So
    the result depends on the tokens alone and not on how many of them a step or a write brings.
    The text shown ends before the stop, or with it if `is_kept`. A stop that is complete while it
    is early does not count, then or later; one that only begins early does.

    Held back is only the longest end of the text that is a proper prefix of some stop, or from
    where a pattern may still match. The cost of a piece grows with its own length and the number of
    stops, never with the text so far or the length of a stop: clients choose the stops, and one of
    100,000 letters must not slow the loop. What patterns cost is bounded by a budget.
    """

    def __init__(
        self,
        stops: Sequence[str],
        patterns: Sequence[str] = (),
        regexes: RegexFinder | None = None,
        *,
        is_kept: bool = False,
    ) -> None:
        """`regexes` searches for `patterns`."""
        assert all(stops), f"an empty stop string is refused before it gets here: {stops!r}"
        self._matchers = [_Matcher(stop) for stop in stops]
        self._labels = (*stops, *patterns)
        self._regexes = regexes
        self._is_kept = is_kept
        # Single characters, so that taking from the front costs what is taken.
        self._held: deque[str] = deque()
        self._num_shown = 0
        self._is_done = False

    def feed(self, text: str, is_early: bool = False) -> Found:
        """Take the next piece; after a match the finder is done and must not be fed again.

        Raises RequestError if the patterns take too long.
        """
        assert not self._is_done, "fed after a stop was found"
        num_before = self._num_shown + len(self._held)
        self._held.extend(text)
        num_chars = num_before + len(text)
        # (start, rank, end), in characters of the whole text.
        found: list[tuple[int, int, int]] = []
        first_live = num_chars
        for rank, matcher in enumerate(self._matchers):
            end = matcher.advance(text, is_early)
            if end is not None:
                found.append((num_before + end - len(matcher.stop), rank, num_before + end))
            first_live = min(first_live, num_chars - matcher.num_matched)
        if self._regexes is not None:
            match = self._regexes.feed(text, is_early)
            if match is not None:
                found.append((match.start, len(self._matchers) + match.rank, match.end))
            first_live = min(first_live, self._regexes.first_live)
        if not found:
            return Found(self._take(first_live), None)
        start, rank, end = min(found)
        shown = self._take(end if self._is_kept else start)
        self._held.clear()
        self._is_done = True
        return Found(shown, self._labels[rank])

    def flush(self) -> str:
        """The text held back, once no more will come; nothing after a match."""
        return self._take(self._num_shown + len(self._held))

    def _take(self, until: int) -> str:
        text = "".join([self._held.popleft() for _ in range(until - self._num_shown)])
        self._num_shown += len(text)
        return text


class _Matcher:
    """Knuth-Morris-Pratt for one stop string, whose border table grows only as far as text matches.

    `num_matched` is the length of the longest prefix of the stop that the text so far ends with;
    never all of it.
    Rejected: one Aho-Corasick automaton for all stops, which would be built for every request at
    a cost of the stops' whole length, in Python, before the first token.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.num_matched = 0
        # _borders[n]: length of the longest proper border of stop[:n]; filled up to num_matched.
        self._borders = [0, 0]

    def advance(self, text: str, is_early: bool) -> int | None:
        """Read `text`; the index in it just after the first full match, if there is one.

        Early matches are passed over.
        """
        stop, borders = self.stop, self._borders
        state = self.num_matched
        index, num_chars = 0, len(text)
        while index < num_chars:
            if state == 0:
                index = text.find(stop[0], index)
                if index < 0:
                    break
            char = text[index]
            while state and stop[state] != char:
                state = borders[state]
            if stop[state] == char:
                state += 1
                if state == len(borders):
                    self._extend_borders()
                if state == len(stop):
                    if not is_early:
                        return index + 1
                    state = borders[state]
            index += 1
        self.num_matched = state
        return None

    def _extend_borders(self) -> None:
        stop, borders = self.stop, self._borders
        last = stop[len(borders) - 1]
        border = borders[-1]
        while border and stop[border] != last:
            border = borders[border]
        borders.append(border + 1 if stop[border] == last else 0)
