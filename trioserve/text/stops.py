"""Search for stop strings in text that arrives piece by piece."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


@frozen
class Found:
    """What one piece of text led to: text that may be shown, and the stop that ended it, if any."""

    text: str
    matched_stop: str | None


class StopFinder:
    """Finds the first stop string in a choice's text and holds back what may become one.

    Feed it the text of one token at a time. After each piece all stops that are complete by then
    compete: the earliest start wins, at equal start the first listed. So the result depends on the
    tokens alone and not on how many of them a step or a write brings.

    Held back is only the longest end of the text that is a proper prefix of some stop. The cost of
    a piece grows with its own length and the number of stops, never with the text so far or the
    length of a stop: clients choose the stops, and one of 100,000 letters must not slow the loop.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), f"an empty stop string is refused before it gets here: {stops!r}"
        self._matchers = [_Matcher(stop) for stop in stops]
        # Single characters, so that taking from the front costs what is taken.
        self._held: deque[str] = deque()
        self._is_done = False

    def feed(self, text: str) -> Found:
        """Take the next piece; after a match the finder is done and must not be fed again."""
        assert not self._is_done, "fed after a stop string was found"
        num_before = len(self._held)
        self._held.extend(text)
        best_start: int | None = None
        best_stop: str | None = None
        for matcher in self._matchers:
            end = matcher.advance(text)
            if end is None:
                continue
            start = num_before + end - len(matcher.stop)
            if best_start is None or start < best_start:
                best_start, best_stop = start, matcher.stop
        if best_start is not None:
            shown = self._take(best_start)
            self._held.clear()
            self._is_done = True
            return Found(shown, best_stop)
        num_kept = max((matcher.num_matched for matcher in self._matchers), default=0)
        return Found(self._take(len(self._held) - num_kept), None)

    def flush(self) -> str:
        """The text held back, once no more will come; nothing after a match."""
        return self._take(len(self._held))

    def _take(self, num_chars: int) -> str:
        return "".join([self._held.popleft() for _ in range(num_chars)])


class _Matcher:
    """Knuth-Morris-Pratt for one stop string, whose border table grows only as far as text matches.

    `num_matched` is the length of the longest prefix of the stop that the text so far ends with.
    Rejected: one Aho-Corasick automaton for all stops, which would be built for every request at
    a cost of the stops' whole length, in Python, before the first token.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.num_matched = 0
        # _borders[n]: length of the longest proper border of stop[:n]; filled up to num_matched.
        self._borders = [0, 0]

    def advance(self, text: str) -> int | None:
        """Read `text`; the index in it just after the first full match, if there is one."""
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
                if state == len(stop):
                    return index + 1
                if state == len(borders):
                    self._extend_borders()
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
