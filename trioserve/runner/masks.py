"""`MaskFiller`: what the grammars of a step allow, found while the device computes the step."""

import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from attrs import define, field, frozen

from trioserve.core import TokenMask
from trioserve.scheduler.plan import PlanRow

MAX_FILL_S = 0.2
"""Of the processor. A row whose mask takes longer fails: it takes some 20 µs, and one that takes
longer than a step holds up everybody, and would in every step."""


@frozen
class FilledMasks:
    """Of one step, by plan row."""

    allowed: dict[int, memoryview]
    failures: dict[int, str]


@define(eq=False)
class FillJob:
    """One step's masks on their way. `join` may be called once."""

    _masks: list[tuple[int, TokenMask]]
    _clock: Callable[[], float]
    _result: FilledMasks = field(init=False, factory=lambda: FilledMasks({}, {}))
    _done: threading.Event = field(init=False, factory=threading.Event)

    def run(self) -> None:
        """Fill them all; one that fails does not keep the others from it."""
        for index, mask in self._masks:
            began = self._clock()
            try:
                self._result.allowed[index] = mask.allowed()
            except Exception as error:  # it runs another library's code on a client's grammar
                self._result.failures[index] = f"the grammar cannot be followed: {error}"
            if self._clock() - began > MAX_FILL_S:
                self._result.failures[index] = "the grammar takes too long to follow"
        self._done.set()

    def join(self) -> FilledMasks:
        """Wait for all of them."""
        if self._masks:
            self._done.wait()
        return self._result


class MaskFiller:
    """Owns one thread, started with the first mask; xgrammar releases the GIL in it.

    One thread, so that a mask is never filled twice at once: a sequence that was preempted and
    taken in again may be in two steps in flight. A daemon, because a fill that hangs must not keep
    the process from ending.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._jobs: SimpleQueue[FillJob] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, rows: Iterable[PlanRow]) -> FillJob:
        """Begin with the masks of a step's rows; returns at once."""
        masks = [(index, row.mask) for index, row in enumerate(rows) if row.mask is not None]
        job = FillJob(masks, self._clock)
        if masks:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="trioserve-masks", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)
        return job

    def _serve(self) -> None:
        while True:
            self._jobs.get().run()
