"""`WaitingQueue`: sequences without pages, in order of arrival."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from trioserve.scheduler.sequence import Sequence


class WaitingQueue:
    """Ordered by sequence id, so that a preempted sequence goes back to its old place.

    Rejected: putting preempted ones at the front; two of them would swap places for ever.
    """

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(tuple(self._sequences))

    def add(self, sequence: Sequence) -> None:
        """Enqueue; O(log n) to find the place."""
        insort(self._sequences, sequence, key=lambda waiting: waiting.id)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out: admitted or ended. O(log n) to find it."""
        index = bisect_left(self._sequences, sequence.id, key=lambda waiting: waiting.id)
        if self._sequences[index : index + 1] != [sequence]:
            raise ValueError(f"sequence {sequence.id} does not wait")
        del self._sequences[index]
