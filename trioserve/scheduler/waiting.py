"""`WaitingQueue`: sequences without pages, in the order in which they should be served."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from trioserve.scheduler.sequence import Sequence


class WaitingQueue:
    """Ordered by rank, so that a preempted sequence goes back to its old place.

    Rejected: putting preempted ones at the front; two of them would swap places for ever.
    """

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(tuple(self._sequences))

    def first_ready(self, num_sequences: int) -> list[Sequence]:
        """The first ones that could go on: without those preempted while their reader stalled."""
        return list(islice((held for held in self._sequences if held.has_credit), num_sequences))

    def add(self, sequence: Sequence) -> None:
        """Enqueue; O(log n) to find the place."""
        insort(self._sequences, sequence, key=lambda waiting: waiting.rank)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out: admitted or ended. O(log n) to find it."""
        index = bisect_left(self._sequences, sequence.rank, key=lambda waiting: waiting.rank)
        if self._sequences[index : index + 1] != [sequence]:
            raise ValueError(f"sequence {sequence.id} does not wait")
        del self._sequences[index]
