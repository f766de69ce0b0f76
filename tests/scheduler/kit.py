"""What the scheduler's tests share: a scheduler whose steps are finished by hand, without Trio."""

from collections import deque

from attrs import define, field

from trioserve.core import (
    READ_NOTHING,
    CacheNamespace,
    ReadoutParams,
    SamplingParams,
    SequenceId,
    StepNumber,
)
from trioserve.kv.pool import PagePool
from trioserve.scheduler.plan import StepPlan
from trioserve.scheduler.scheduler import Scheduler, SchedulerLimits
from trioserve.scheduler.sequence import Sequence, SequenceState

TOKEN = 7
"""Every token, fed or sampled: the scheduler does not look at them."""

PLENTY = 10_000


@define(eq=False)
class Reader:
    """How many more tokens a sequence may produce before its reader has to take some."""

    room: int = PLENTY


@define(eq=False)
class Steps:
    """Plans and finishes steps as the driver does, and checks the books after each."""

    num_pages: int = 64
    page_size: int = 4
    max_running: int = 8
    max_step_tokens: int = 16
    pool: PagePool = field(init=False)
    scheduler: Scheduler = field(init=False)
    in_flight: deque[StepPlan] = field(init=False, factory=deque)
    readers: dict[Sequence, Reader] = field(init=False, factory=dict)
    num_launched: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.pool = PagePool(self.num_pages)
        limits = SchedulerLimits(self.page_size, self.max_running, self.max_step_tokens)
        self.scheduler = Scheduler(self.pool, limits)

    def add(
        self,
        prompt: int | tuple[int, ...],
        max_tokens: int = 100,
        room: int = PLENTY,
        *,
        namespace: CacheNamespace | None = None,
        priority: int = 0,
        readout: ReadoutParams = READ_NOTHING,
    ) -> Sequence:
        """Enqueue a sequence whose reader has room for `room` tokens. A number is a length."""
        reader = Reader(room)
        sequence = Sequence(
            id=SequenceId(len(self.readers) + 1),
            prompt_ids=(TOKEN,) * prompt if isinstance(prompt, int) else prompt,
            max_tokens=max_tokens,
            sampling=SamplingParams(),
            sample_index=0,
            credit=lambda: reader.room,
            readout=readout,
            namespace=namespace,
            priority=priority,
        )
        self.readers[sequence] = reader
        self.scheduler.add(sequence)
        return sequence

    def plant(self, prompt_len: int, num_planned: int) -> Sequence:
        """A running sequence that the newest step has brought to `num_planned` tokens."""
        sequence = self.add(prompt_len)
        self.scheduler._places.waiting.remove(sequence)
        sequence.state = SequenceState.RUNNING
        sequence.lease = self.scheduler.tree.lease(None)
        sequence.lease.extend(-(-num_planned // self.page_size))
        sequence.num_planned = num_planned
        sequence.last_step = StepNumber(self.num_launched)
        self.scheduler._places.running.append(sequence)
        self.check()
        return sequence

    def launch(self) -> StepPlan | None:
        """Plan the next step; it is in flight until `finish`."""
        plan = self.scheduler.plan(StepNumber(self.num_launched + 1))
        self.check()
        if plan is not None:
            self.num_launched += 1
            self.in_flight.append(plan)
        return plan

    def finish(self) -> None:
        """Commit and retire the oldest step in flight."""
        plan = self.in_flight.popleft()
        for row in plan.rows:
            if row.epoch != row.sequence.epoch:
                continue
            self.scheduler.publish(row)
            if row.is_sampled:
                row.sequence.append(TOKEN)
                self.readers[row.sequence].room -= 1
                if row.sequence.num_output >= row.sequence.max_tokens:
                    self.scheduler.end(row.sequence)
        self.pool.retire(plan.number)
        self.check()

    def step(self, num_steps: int = 1) -> dict[Sequence, int]:
        """Whole steps with nothing overlapping them: the tokens that the last one fed."""
        plan = None
        for _ in range(num_steps):
            plan = self.launch()
            assert plan is not None, "nothing to plan"
            self.finish()
        return fed(plan)

    def turn(self, depth: int) -> bool:
        """What the driver does in one round at this depth; False if there was nothing to do."""
        while len(self.in_flight) < depth and self.launch() is not None:
            pass
        if not self.in_flight:
            return False
        self.finish()
        return True

    def check(self) -> None:
        """Assert the census and the scheduler's books."""
        self.pool.check()
        self.scheduler.check()

    def check_idle(self) -> None:
        """Nothing is held: every page is free or cached and no sequence is remembered."""
        self.check()
        assert self.pool.num_free + self.scheduler.tree.num_unused == self.num_pages
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0


def fed(plan: StepPlan | None) -> dict[Sequence, int]:
    """Tokens that a plan feeds each sequence."""
    return {row.sequence: row.num_tokens for row in plan.rows} if plan is not None else {}


def num_held(sequence: Sequence) -> int:
    """Pages that a sequence holds."""
    return len(sequence.lease.page_ids) if sequence.lease else 0


def is_running(sequence: Sequence) -> bool:
    return sequence.state is SequenceState.RUNNING


def is_waiting(sequence: Sequence) -> bool:
    return sequence.state is SequenceState.WAITING


def is_paused(sequence: Sequence) -> bool:
    return sequence.state is SequenceState.PAUSED


def is_ended(sequence: Sequence) -> bool:
    return sequence.state is SequenceState.ENDED
