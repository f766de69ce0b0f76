"""`Scheduler`: turns the sequences it holds into one `StepPlan` after another."""

from typing import TYPE_CHECKING

from attrs import frozen

from trioserve.core import SequenceId, StepNumber
from trioserve.kv.lease import PageLease
from trioserve.kv.node import PageNode
from trioserve.kv.pool import PagePool
from trioserve.kv.tree import PrefixTree
from trioserve.scheduler.admission import WINDOW, AdmissionOrder
from trioserve.scheduler.audit import check_holders, check_states
from trioserve.scheduler.budget import StepBudget
from trioserve.scheduler.loads import PageLoads, sources
from trioserve.scheduler.places import Places
from trioserve.scheduler.plan import PlanRow, StepPlan
from trioserve.scheduler.rows import make_row
from trioserve.scheduler.sequence import Sequence, SequenceState
from trioserve.scheduler.supply import PageSupply

if TYPE_CHECKING:
    from collections.abc import Callable


@frozen
class SchedulerLimits:
    """What bounds a step."""

    page_size: int
    max_running: int
    max_step_tokens: int


class Scheduler:
    """Continuous batching with chunked prefill, in order of rank (Orca, OSDI 2022).

    Rank is priority and arrival: "newer" below means lower in rank. One pass over the batch, oldest
    first, gives every sequence its token or its chunk; what is left of the budget admits waiting
    ones. When pages run short the pass evicts what nobody uses, and then preempts: first sequences
    whose reader has stalled, then the newest, never one that is older than the one in need. Pages
    in quarantine count as coming free: the sequence in need waits for the step in flight instead
    of preempting a second time for the same shortage, and while it waits no newer one takes the
    pages it waits for.

    `plan` is the only method that adds a sequence to a step; `end` the only way out. After `end`
    returns no later plan names the sequence.
    """

    def __init__(self, pool: PagePool, limits: SchedulerLimits) -> None:
        self.tree = PrefixTree(pool, limits.page_size)
        self._pool = pool
        self._limits = limits
        self._supply = PageSupply(pool, self.tree, limits.page_size)
        self.loads = PageLoads(self._supply, self._num_promised)
        self.seek: Callable[[Sequence], None] = lambda sequence: None
        """Called once for each sequence that comes up, to begin a load of what tiers below have."""
        self._places = Places()
        self._num_awaited_pages = 0
        self._last_victim: SequenceId | None = None
        self.num_preemptions = 0
        self.num_recomputed_tokens = 0

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""
        return len(self._places.running)

    @property
    def num_waiting(self) -> int:
        """Sequences in the queue, preempted and paused ones included."""
        return len(self._places.waiting) + len(self._places.paused)

    @property
    def num_over_slots(self) -> int | None:
        """Sequences that wait because all slots are taken, or None while a slot is free.

        Counts by what was admitted, not by what the last plan did: a sequence that arrived since
        then will take a slot in the next step. One whose reader has stalled will not.
        """
        num_stalled = sum(
            not held.has_credit for held in (*self._places.waiting, *self._places.paused)
        )
        num_held = self.num_running + self.num_waiting
        if num_held - num_stalled < self._limits.max_running:
            return None
        return num_held - self._limits.max_running

    @property
    def num_held_tokens(self) -> int:
        """Tokens whose keys and values stand in pages that sequences use, shared ones once."""
        return self._supply.num_used_tokens(self._places.holders)

    def capacity_tokens(self) -> int:
        """Tokens that fit in the whole pool: the most that one sequence may ever need."""
        return self._pool.num_pages * self._limits.page_size

    def add(self, sequence: Sequence) -> None:
        """Enqueue a new sequence. It must fit in the pool alone (`capacity_tokens`)."""
        assert sequence.state is SequenceState.WAITING, f"added a sequence that is {sequence.state}"
        self._places.put(sequence, SequenceState.WAITING)

    def end(self, sequence: Sequence) -> None:
        """Take the sequence out, whatever state it is in, and release its pages. Idempotent.

        Not a checkpoint: safe in a cancelled task.
        """
        if sequence.state is not SequenceState.ENDED:
            self._places.move(sequence, SequenceState.ENDED)
            sequence.drop_computed()

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
            sum(sequence.num_missing == 1 for sequence in self._places.running),
        )
        rows: list[PlanRow] = []
        # Over a copy: preemption removes newer sequences from the batch while we go.
        for sequence in tuple(self._places.running):
            if sequence.state is SequenceState.RUNNING:
                self._plan_row(sequence, number, budget, rows)
        # Rejected: admitting a small one meanwhile. The next plan would take its pages away again,
        # and the plan after that would admit it again.
        if self._num_awaited_pages == 0:
            self._admit(number, budget, rows)
        return StepPlan(number, tuple(rows)) if rows else None

    def publish(self, row: PlanRow) -> list[PageNode]:
        """A step that is committed has computed the row: what it filled may be shared.

        For live rows only, and before a token that it sampled ends the sequence. Returns what is
        new in the tree.
        """
        sequence = row.sequence
        assert sequence.lease is not None, f"sequence {sequence.id} computed without a lease"
        if sequence.namespace is None:
            return []
        return self.tree.publish(sequence.lease, sequence.known_ids, row.end, sequence.last_step)

    def check(self) -> None:
        """Assert that the books agree: states, order, slots and pages; see audit.py."""
        assert len(self._places.running) <= self._limits.max_running, (
            f"{len(self._places.running)} running"
        )
        check_states(self._places.running, SequenceState.RUNNING, self._supply)
        check_states(self._places.paused, SequenceState.PAUSED, self._supply)
        check_states(list(self._places.waiting), SequenceState.WAITING, self._supply)
        check_holders(self._places.holders, self.loads, self._supply)
        self.tree.check()

    def _pause_stalled(self) -> None:
        """A sequence whose reader takes nothing gives up its slot but keeps its pages."""
        for sequence in tuple(self._places.running):
            if not sequence.has_credit and sequence.num_missing > 0:
                self._places.move(sequence, SequenceState.PAUSED)

    def _resume_paused(self) -> None:
        for sequence in tuple(self._places.paused):
            if len(self._places.running) >= self._limits.max_running:
                return
            if sequence.has_credit:
                self._places.move(sequence, SequenceState.RUNNING)

    def _admit(self, number: StepNumber, budget: StepBudget, rows: list[PlanRow]) -> None:
        # A sequence that was preempted while its reader stalled must not hold up the queue.
        ready = self._places.waiting.first_ready(WINDOW)
        for sequence in ready:
            if not sequence.is_sought:
                sequence.is_sought = True
                self.seek(sequence)
        if not ready or self._is_full(budget):
            return  # in most steps; finding what comes next costs a look at each prefix
        admission = AdmissionOrder(self.tree)
        for sequence in self._places.running:
            admission.note_running(sequence)
        for load in self.loads:
            admission.note_load(load)
        for sequence in admission.order(ready):
            if self._is_full(budget):
                return
            if not self._start(sequence):
                return  # strictly in order: a large request is never overtaken for ever
            admission.note_running(sequence)
            self._plan_row(sequence, number, budget, rows)

    def _is_full(self, budget: StepBudget) -> bool:
        return len(self._places.running) >= self._limits.max_running or budget.num_prefill_left <= 0

    def _start(self, sequence: Sequence) -> bool:
        """Put the sequence in the batch with what is cached of it, if there is room for it."""
        # Locked first: what is found must not be counted as what could be evicted.
        lease = self._lease_prefix(sequence)
        if not self._has_room_for(sequence, lease):
            lease.release(None)
            return False
        sequence.lease = lease
        sequence.num_planned = lease.num_shared * self._limits.page_size
        if sequence.cached is None:
            sequence.cached = sources(sequence.num_planned, sequence.restored)
        self._places.move(sequence, SequenceState.RUNNING)
        return True

    def _lease_prefix(self, sequence: Sequence) -> PageLease:
        if sequence.namespace is None:
            return self.tree.lease(None)
        return self.tree.lease(sequence.namespace, sequence.known_ids, sequence.num_reusable)

    def _has_room_for(self, sequence: Sequence, lease: PageLease) -> bool:
        """Whether there are pages for all tokens that it has and a page more, and for the batch's.

        Without the batch's share, what is still to prefill would take the pages back; without the
        page more, the next token would. Preempts stalled sequences for it, never a running one:
        those are older.
        """
        promised = self._supply.promised(sequence, lease, self._limits.page_size)
        needed = promised + self._num_promised()
        if self._supply.lacks(needed - self._supply.num_held_only_by(self._places.paused)):
            return False  # taking pages from stalled readers would not be enough
        self._reclaim_from_stalled(needed)
        return self._supply.set_free(promised)

    def _num_promised(self) -> int:
        """Pages that the sequences in the batch still need for the tokens that they have."""
        return sum(
            self._supply.promised(running, running.lease)
            for running in self._places.running
            if running.lease is not None
        )

    def _plan_row(
        self, sequence: Sequence, number: StepNumber, budget: StepBudget, rows: list[PlanRow]
    ) -> None:
        num_missing = sequence.num_missing
        num_fed = budget.grant(num_missing)
        if num_fed == 0 or not self._make_room(sequence, sequence.num_planned + num_fed):
            return
        budget.spend(num_missing, num_fed)
        row = make_row(sequence, num_fed)
        rows.append(row)
        sequence.num_planned += num_fed
        self.num_recomputed_tokens += max(
            0, min(sequence.num_computed_high, sequence.num_planned) - row.start
        )
        sequence.num_computed_high = max(sequence.num_computed_high, sequence.num_planned)
        sequence.num_in_flight += row.is_sampled
        sequence.last_step = number

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Extend the lease to `num_tokens` positions, preempting if need be. False: not now."""
        assert sequence.lease is not None, f"sequence {sequence.id} runs without a lease"
        num_more = self._supply.pages_for(num_tokens) - len(sequence.lease.page_ids)
        if num_more == 0:
            return True
        # What older sequences wait for in this plan is spoken for.
        needed = self._num_awaited_pages + num_more
        self._reclaim_from_stalled(needed)
        # A sequence that is the newest waits for an older one to end rather than take its pages.
        while self._supply.lacks(needed) and (victim := self._victim_for(sequence)) is not None:
            self._preempt(victim)
        if not self._supply.set_free(needed):
            self._num_awaited_pages = needed
            return False  # the step in flight may give pages back when it retires
        sequence.lease.extend(num_more)
        return True

    def _victim_for(self, sequence: Sequence) -> Sequence | None:
        """The newest running sequence after this one, but not the last victim again if others are.

        Or two of them that need the same pages would have one compute and throw away for ever.
        """
        newer = self._places.running[self._places.running.index(sequence) + 1 :]
        if len(newer) > 1 and newer[-1].id == self._last_victim:
            return newer[-2]
        return newer[-1] if newer else None

    def _reclaim_from_stalled(self, needed: int) -> None:
        while self._supply.lacks(needed) and self._places.paused:
            # One that can go on but found no slot keeps its pages as long as a stalled one has any.
            self._preempt((self._places.stalled() or self._places.paused)[-1])

    def _preempt(self, sequence: Sequence) -> None:
        """Take the pages; the tokens stay and are computed again when it is admitted again."""
        sequence.drop_computed()
        sequence.num_preemptions += 1
        sequence.is_sought = False
        self._places.move(sequence, SequenceState.WAITING)
        self._last_victim = sequence.id
        self.num_preemptions += 1
