"""`Scheduler`: turns the sequences it holds into one `StepPlan` after another."""

from attrs import frozen

from trioserve.core import StepNumber
from trioserve.kv.pool import PagePool
from trioserve.scheduler.budget import StepBudget
from trioserve.scheduler.plan import PlanRow, StepPlan
from trioserve.scheduler.sequence import Sequence, SequenceState
from trioserve.scheduler.waiting import WaitingQueue


@frozen
class SchedulerLimits:
    """What bounds a step."""

    page_size: int
    max_running: int
    max_step_tokens: int


class Scheduler:
    """Continuous batching with chunked prefill, in order of arrival (Orca, OSDI 2022).

    One pass over the batch, oldest first, gives every sequence its token or its chunk; what is
    left of the budget admits waiting ones. When pages run short the pass preempts: first sequences
    whose reader has stalled, then the newest, never one that is older than the one in need. Pages
    in quarantine count as coming free: the sequence in need waits for the step in flight instead
    of preempting a second time for the same shortage, and while it waits no newer one takes the
    pages it waits for.

    `plan` is the only method that adds a sequence to a step; `end` the only way out. After `end`
    returns no later plan names the sequence.
    """

    def __init__(self, pool: PagePool, limits: SchedulerLimits) -> None:
        self._pool = pool
        self._limits = limits
        self._waiting = WaitingQueue()
        # Both in order of arrival; PAUSED ones hold pages but no slot.
        self._running: list[Sequence] = []
        self._paused: list[Sequence] = []
        self._num_awaited_pages = 0
        self.num_preemptions = 0
        self.num_recomputed_tokens = 0

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences in the queue, preempted and paused ones included."""
        return len(self._waiting) + len(self._paused)

    @property
    def num_over_slots(self) -> int | None:
        """Sequences that wait because all slots are taken, or None while a slot is free.

        Counts by what was admitted, not by what the last plan did: a sequence that arrived since
        then will take a slot in the next step. One whose reader has stalled will not.
        """
        num_stalled = sum(not held.has_credit for held in (*self._waiting, *self._paused))
        num_held = self.num_running + self.num_waiting
        if num_held - num_stalled < self._limits.max_running:
            return None
        return num_held - self._limits.max_running

    @property
    def num_held_tokens(self) -> int:
        """Tokens whose keys and values stand in leased pages."""
        return sum(sequence.num_planned for sequence in (*self._running, *self._paused))

    def capacity_tokens(self) -> int:
        """Tokens that fit in the whole pool: the most that one sequence may ever need."""
        return self._pool.num_pages * self._limits.page_size

    def add(self, sequence: Sequence) -> None:
        """Enqueue a new sequence. It must fit in the pool alone (`capacity_tokens`)."""
        assert sequence.state is SequenceState.WAITING, f"added a sequence that is {sequence.state}"
        self._waiting.add(sequence)

    def end(self, sequence: Sequence) -> None:
        """Take the sequence out, whatever state it is in, and release its pages. Idempotent.

        Not a checkpoint: safe in a cancelled task.
        """
        match sequence.state:
            case SequenceState.WAITING:
                self._waiting.remove(sequence)
            case SequenceState.RUNNING:
                self._running.remove(sequence)
            case SequenceState.PAUSED:
                self._paused.remove(sequence)
            case SequenceState.ENDED:
                return
        sequence.drop_computed()
        sequence.state = SequenceState.ENDED

    def plan(self, number: StepNumber) -> StepPlan | None:
        """The rows of step `number`, or None if nothing can be computed now.

        Modifies the sequences planned as if the step were launched, which the caller must do. None
        while a step is in flight may mean that pages are coming free: plan again after it retired.
        """
        self._pause_stalled()
        self._resume_paused()
        self._num_awaited_pages = 0
        budget = StepBudget(
            self._limits.max_step_tokens,
            sum(sequence.num_missing == 1 for sequence in self._running),
        )
        rows: list[PlanRow] = []
        # Over a copy: preemption removes newer sequences from the batch while we go.
        for sequence in tuple(self._running):
            if sequence.state is SequenceState.RUNNING:
                self._plan_row(sequence, number, budget, rows)
        # Rejected: admitting a small one meanwhile. The next plan would take its pages away again,
        # and the plan after that would admit it again.
        if self._num_awaited_pages == 0:
            self._admit(number, budget, rows)
        return StepPlan(number, tuple(rows)) if rows else None

    def check(self) -> None:
        """Assert that the books agree: states, order, slots and pages covering what is planned."""
        for sequences, state in (
            (self._running, SequenceState.RUNNING),
            (self._paused, SequenceState.PAUSED),
            (list(self._waiting), SequenceState.WAITING),
        ):
            ids = [sequence.id for sequence in sequences]
            assert ids == sorted(set(ids)), f"{state} out of order: {ids}"
            for sequence in sequences:
                assert sequence.state is state, f"{sequence.id} is {sequence.state}, not {state}"
                held = len(sequence.lease.page_ids) if sequence.lease else 0
                needed = self._pages_for(sequence.num_planned)
                assert held == needed, f"sequence {sequence.id} holds {held} pages for {needed}"
        assert len(self._running) <= self._limits.max_running, f"{len(self._running)} running"
        held_pages = sum(
            len(sequence.lease.page_ids)
            for sequence in (*self._running, *self._paused)
            if sequence.lease
        )
        leased = self._pool.statistics().leased
        assert held_pages == leased, f"sequences hold {held_pages} pages, the pool leased {leased}"

    def _pause_stalled(self) -> None:
        """A sequence whose reader takes nothing gives up its slot but keeps its pages."""
        for sequence in tuple(self._running):
            if not sequence.has_credit and sequence.num_missing > 0:
                self._running.remove(sequence)
                self._insert(self._paused, sequence, SequenceState.PAUSED)

    def _resume_paused(self) -> None:
        for sequence in tuple(self._paused):
            if len(self._running) >= self._limits.max_running:
                return
            if sequence.has_credit:
                self._paused.remove(sequence)
                self._insert(self._running, sequence, SequenceState.RUNNING)

    def _admit(self, number: StepNumber, budget: StepBudget, rows: list[PlanRow]) -> None:
        for sequence in self._waiting:
            if len(self._running) >= self._limits.max_running or budget.num_prefill_left <= 0:
                return
            if not sequence.has_credit:
                continue  # preempted while its reader stalled; it must not hold up the queue
            if not self._has_room_for(sequence):
                return  # strictly in order: a large request is never overtaken for ever
            self._waiting.remove(sequence)
            self._insert(self._running, sequence, SequenceState.RUNNING)
            sequence.lease = self._pool.lease(0)
            self._plan_row(sequence, number, budget, rows)

    def _has_room_for(self, sequence: Sequence) -> bool:
        """Whether all tokens that the sequence has, and the next page, fit in free pages now.

        Preempts stalled sequences for it, never a running one: those are older.
        """
        # The next page may not be needed at all by a sequence that fills the pool.
        needed = min(self._pages_for(sequence.num_missing) + 1, self._pool.num_pages)
        reclaimable = sum(len(paused.lease.page_ids) for paused in self._paused if paused.lease)
        if self._lacks(needed - reclaimable):
            return False  # taking pages from stalled readers would not be enough
        self._reclaim_from_stalled(needed)
        return self._pool.num_free >= needed

    def _plan_row(
        self, sequence: Sequence, number: StepNumber, budget: StepBudget, rows: list[PlanRow]
    ) -> None:
        num_missing = sequence.num_missing
        num_fed = budget.grant(num_missing)
        if num_fed == 0 or not self._make_room(sequence, sequence.num_planned + num_fed):
            return
        budget.spend(num_missing, num_fed)
        start = sequence.num_planned
        known = tuple(sequence.token_ids[start : start + num_fed])
        is_carried = not known
        # Tokens in flight are sampled one at a time, so a row that feeds one feeds nothing else.
        assert is_carried or len(known) == num_fed, f"{num_fed} tokens from {start}: {known}"
        assert sequence.lease is not None, f"sequence {sequence.id} runs without a lease"
        is_sampled = num_fed == num_missing and sequence.max_tokens > 0
        has_penalties = sequence.sampling.has_penalties
        targets = _targets(sequence, start, num_fed)
        rows.append(
            PlanRow(
                sequence=sequence,
                epoch=sequence.epoch,
                start=start,
                token_ids=known,
                is_carried=is_carried,
                page_ids=tuple(sequence.lease.page_ids),
                is_sampled=is_sampled,
                sampling=sequence.sampling,
                sample_index=sequence.sample_index,
                num_prompt=len(sequence.prompt_ids),
                history=tuple(sequence.token_ids) if is_sampled and has_penalties else (),
                masked_ids=sequence.masked_ids if is_sampled else frozenset(),
                readout=sequence.readout,
                target_start=targets.start,
                target_ids=sequence.prompt_ids[targets.start : targets.stop],
            )
        )
        sequence.num_planned += num_fed
        self.num_recomputed_tokens += max(
            0, min(sequence.num_computed_high, sequence.num_planned) - start
        )
        sequence.num_computed_high = max(sequence.num_computed_high, sequence.num_planned)
        sequence.num_in_flight += is_sampled
        sequence.last_step = number

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Extend the lease to `num_tokens` positions, preempting if need be. False: not now."""
        assert sequence.lease is not None, f"sequence {sequence.id} runs without a lease"
        num_more = self._pages_for(num_tokens) - len(sequence.lease.page_ids)
        if num_more == 0:
            return True
        # What older sequences wait for in this plan is spoken for.
        needed = self._num_awaited_pages + num_more
        self._reclaim_from_stalled(needed)
        # A sequence that is the newest waits for an older one to end rather than take its pages.
        while self._lacks(needed) and self._running[-1] is not sequence:
            self._preempt(self._running[-1])
        if self._pool.num_free < needed:
            self._num_awaited_pages = needed
            return False  # the step in flight may give pages back when it retires
        sequence.lease.extend(num_more)
        return True

    def _reclaim_from_stalled(self, needed: int) -> None:
        while self._lacks(needed) and self._paused:
            # One that can go on but found no slot keeps its pages as long as a stalled one has any.
            self._preempt((self._stalled() or self._paused)[-1])

    def _lacks(self, needed: int) -> bool:
        """Whether fewer than `needed` pages are free or come free by themselves."""
        return self._pool.num_free + self._pool.num_coming_free < needed

    def _stalled(self) -> list[Sequence]:
        """Those of the paused whose reader still takes nothing, in order of arrival."""
        return [sequence for sequence in self._paused if not sequence.has_credit]

    def _preempt(self, sequence: Sequence) -> None:
        """Take the pages; the tokens stay and are computed again when it is admitted again."""
        held_by = self._running if sequence.state is SequenceState.RUNNING else self._paused
        held_by.remove(sequence)
        sequence.drop_computed()
        sequence.num_preemptions += 1
        sequence.state = SequenceState.WAITING
        self._waiting.add(sequence)
        self.num_preemptions += 1

    def _insert(self, into: list[Sequence], sequence: Sequence, state: SequenceState) -> None:
        sequence.state = state
        into.append(sequence)
        into.sort(key=lambda held: held.id)  # nearly sorted: one pass

    def _pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._limits.page_size)


def _targets(sequence: Sequence, start: int, num_fed: int) -> range:
    """Positions of the prompt tokens whose logprobs a row from `start` on can be read for."""
    first = sequence.readout.prompt_from
    if first is None:
        return range(0)
    return range(max(first, start + 1), min(start + num_fed + 1, len(sequence.prompt_ids)))
