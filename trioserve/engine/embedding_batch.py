"""`EmbeddingBatch`: the embeddings requests that wait or are being computed.

No method is a checkpoint. The driver calls `plan`, `commit` and `retire`; requests call `add` and
`abort`, from whatever task they run in, cancelled ones included.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from math import inf

from attrs import define, field

from trioserve.core import StepNumber
from trioserve.device.base import StepResult
from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.embedding import OpenEmbedding, aborted
from trioserve.engine.served import ServedEmbedder
from trioserve.engine.statistics import EngineStatistics
from trioserve.errors import RequestFailed, TrioserveError
from trioserve.runner.embedding_plan import EmbeddingPlan

_Row = tuple[OpenEmbedding, int]


@define(eq=False)
class EmbeddingBatch:
    """One per embedding model and device.

    A text is computed whole in one step and leaves nothing behind on the device, so there are
    neither pages nor chunks, and what an aborted request leaves is a result that is dropped.
    """

    model: ServedEmbedder
    max_running: int
    statistics: EngineStatistics
    clock: Callable[[], float]
    requests: set[OpenEmbedding] = field(init=False, factory=set)
    last_launched: StepNumber = field(init=False, default=StepNumber(0))
    last_retired: StepNumber = field(init=False, default=StepNumber(0))
    # In order of arrival, and within a request the longest text first: texts of a length share a
    # step without padding, and its answer waits for all of them anyhow.
    _waiting: OrderedDict[OpenEmbedding, deque[int]] = field(init=False, factory=OrderedDict)
    _num_waiting: int = field(init=False, default=0)
    _in_flight: dict[StepNumber, tuple[_Row, ...]] = field(init=False, factory=dict)

    @property
    def is_idle(self) -> bool:
        """Nothing waiting or in flight."""
        return not self._waiting and not self._in_flight

    @property
    def num_running(self) -> int:
        """Texts in the steps in flight, those of aborted requests included."""
        return sum(map(len, self._in_flight.values()))

    @property
    def num_waiting(self) -> int:
        """Texts in the queue."""
        return self._num_waiting

    @property
    def num_over_slots(self) -> int | None:
        """Texts that wait because all slots are taken, or None while a slot is free."""
        num_held = self.num_running + self._num_waiting
        return None if num_held < self.max_running else num_held - self.max_running

    def add(self, opened: OpenEmbedding) -> None:
        """Enqueue every text of the request, whole."""
        inputs = opened.request.inputs
        self.requests.add(opened)
        self.statistics.prompt_tokens.inc(opened.request.num_tokens)
        longest_first = sorted(range(len(inputs)), key=lambda index: -len(inputs[index]))
        self._waiting[opened] = deque(longest_first)
        self._num_waiting += len(inputs)

    def abort(self, opened: OpenEmbedding, reason: AbortReason) -> None:
        """End the request without its vectors. Idempotent.

        From here no further step includes it, and what is in flight for it is dropped.
        """
        self.fail(opened, aborted(opened.request, reason), reason)

    def fail(self, opened: OpenEmbedding, error: TrioserveError, reason: AbortReason) -> None:
        """Like `abort`, with an error that its reader gets."""
        if opened.is_finished:
            return
        self.statistics.aborted.labels(reason).inc()
        self._num_waiting -= len(self._waiting.pop(opened, ()))
        opened.fail(error)

    def abort_expired(self) -> float:
        """Abort requests past their deadline, and return the next deadline that comes up."""
        now, next_deadline = self.clock(), inf
        for opened in self.requests:
            if opened.deadline == inf or opened.is_finished:
                continue
            if opened.deadline <= now:
                self.abort(opened, AbortReason.TIMEOUT)
            else:
                next_deadline = min(next_deadline, opened.deadline)
        return next_deadline

    def close(self, opened: OpenEmbedding) -> None:
        """The request's scope is left, for whatever reason: the one exit of every request."""
        if opened.is_closed:
            return
        opened.is_closed = True
        self.abort(opened, AbortReason.CANCELLED)
        self.requests.discard(opened)
        self.statistics.e2e_s.observe(self.clock() - opened.opened_at)

    def plan(self) -> EmbeddingPlan | None:
        """The next step, or None if there is nothing to compute now. Must be launched."""
        rows = self._take_rows()
        if not rows:
            return None
        self.last_launched = StepNumber(self.last_launched + 1)
        self._in_flight[self.last_launched] = rows
        self.statistics.steps.inc()
        for opened, _ in rows:
            if not opened.is_started:
                self.statistics.queue_s.observe(self.clock() - opened.opened_at)
                opened.mark_started()
        inputs = tuple(opened.request.inputs[index] for opened, index in rows)
        return EmbeddingPlan(self.last_launched, inputs)

    def commit(self, plan: EmbeddingPlan, result: StepResult) -> None:
        """Hand out the vectors of rows that are still wanted."""
        failures = {failure.row: failure.message for failure in result.failures}
        for row, (opened, index) in enumerate(self._in_flight[plan.number]):
            if opened.is_finished:  # aborted since it was planned
                continue
            if row in failures:
                self.fail(opened, RequestFailed(failures[row]), AbortReason.FAILED)
                continue
            vector = result.readouts[row].vector
            assert vector is not None, f"step {plan.number} has no vector for row {row}"
            opened.put(index, vector)

    def retire(self, plan: EmbeddingPlan) -> None:
        """The device is done with the step: its slots are free."""
        self.last_retired = plan.number
        del self._in_flight[plan.number]

    def check(self) -> None:
        """Assert that the books agree, and that everybody who waits is known."""
        num_waiting = sum(map(len, self._waiting.values()))
        assert num_waiting == self._num_waiting, f"{num_waiting} wait, not {self._num_waiting}"
        assert self.num_running <= self.max_running, f"{self.num_running} running"
        steps = list(range(self.last_retired + 1, self.last_launched + 1))
        assert list(self._in_flight) == steps, f"in flight {list(self._in_flight)}, not {steps}"
        for opened, indices in self._waiting.items():
            assert indices, "a request waits with no text"
            assert opened in self.requests, "a request waits that is closed"
            assert not opened.is_finished, "a request waits that has ended"
        in_flight = {opened for rows in self._in_flight.values() for opened, _ in rows}
        for opened in self.requests:
            is_alive = opened.is_finished or opened in self._waiting or opened in in_flight
            assert is_alive, f"request {opened.request.request_id} was lost"

    def _take_rows(self) -> tuple[_Row, ...]:
        """Whole texts from the front, as many as the step's budget and the slots allow."""
        rows: list[_Row] = []
        longest = 0
        num_slots = self.max_running - self.num_running
        while self._waiting and len(rows) < num_slots:
            opened, indices = next(iter(self._waiting.items()))
            longest = max(longest, len(opened.request.inputs[indices[0]]))
            # Each row costs as much as the longest; the first is taken whatever it costs.
            if rows and (len(rows) + 1) * longest > self.model.max_step_tokens:
                break
            rows.append((opened, indices.popleft()))
            self._num_waiting -= 1
            if not indices:
                del self._waiting[opened]
        return tuple(rows)
