"""The scheduler against one that is too simple to be wrong: one sequence at a time, in one piece.

Both are given the same arrivals and the same model. They must produce the same tokens, and the real
one must compute nothing beyond what the simple one does, but for what it says it computed again.
"""

from collections import deque
from typing import Protocol

from attrs import define, field, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trioserve.core import PageId, SamplingParams, SequenceId, StepNumber
from trioserve.kv.pool import PagePool
from trioserve.scheduler.plan import PlanRow, StepPlan
from trioserve.scheduler.scheduler import Scheduler, SchedulerLimits
from trioserve.scheduler.sequence import Sequence
from trioserve.testing.fake_model import FakeRunner


class Plans(Protocol):
    """What both schedulers can do."""

    def add(self, sequence: Sequence) -> None: ...
    def end(self, sequence: Sequence) -> None: ...
    def plan(self, number: StepNumber) -> StepPlan | None: ...


@define
class OneAtATime:
    """Feeds the oldest sequence whole, over all pages in order, until it has ended."""

    num_pages: int
    sequences: deque[Sequence] = field(factory=deque)

    def add(self, sequence: Sequence) -> None:
        self.sequences.append(sequence)

    def end(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)

    def plan(self, number: StepNumber) -> StepPlan | None:
        if not self.sequences:
            return None
        sequence = self.sequences[0]
        row = PlanRow(
            sequence=sequence,
            epoch=sequence.epoch,
            start=sequence.num_planned,
            token_ids=tuple(sequence.token_ids[sequence.num_planned :]),
            is_carried=False,
            page_ids=tuple(PageId(page) for page in range(self.num_pages)),
            is_sampled=True,
            sampling=sequence.sampling,
            sample_index=sequence.sample_index,
        )
        sequence.num_planned = row.end
        sequence.num_in_flight = 1
        return StepPlan(number, (row,))


@frozen
class Arrival:
    """A request that comes before the given round."""

    round: int
    prompt: tuple[int, ...]
    max_tokens: int


@define
class Played:
    """What a scheduler made of the arrivals."""

    outputs: dict[int, list[int]] = field(factory=dict)
    num_fed: dict[int, int] = field(factory=dict)


def play(
    scheduler: Plans, pool: PagePool, runner: FakeRunner, arrivals: list[Arrival], depth: int
) -> Played:
    """Bring all arrivals in, in order, and step until nothing is left."""
    played = Played()
    coming = deque(enumerate(arrivals))
    in_flight: deque[StepPlan] = deque()
    number = num_rounds = 0
    while True:
        while coming and coming[0][1].round <= num_rounds:
            index, arrival = coming.popleft()
            scheduler.add(
                Sequence(
                    SequenceId(index),
                    arrival.prompt,
                    arrival.max_tokens,
                    SamplingParams(),
                    index,
                    credit=lambda: 1 << 30,
                )
            )
        while len(in_flight) < depth:
            plan = scheduler.plan(StepNumber(number + 1))
            if plan is None:
                break
            number += 1
            in_flight.append(plan)
        num_rounds += 1
        if in_flight:
            finish(in_flight.popleft(), scheduler, pool, runner, played)
        elif not coming:
            return played


def finish(
    plan: StepPlan, scheduler: Plans, pool: PagePool, runner: FakeRunner, played: Played
) -> None:
    tokens = runner.compute(plan).token_ids
    for row, token in zip(plan.rows, tokens, strict=True):
        sequence = row.sequence
        played.num_fed[sequence.id] = played.num_fed.get(sequence.id, 0) + row.num_tokens
        if row.epoch == sequence.epoch and token is not None:
            sequence.append(token)
            if sequence.num_output == sequence.max_tokens:
                played.outputs[sequence.id] = sequence.token_ids[len(sequence.prompt_ids) :]
                scheduler.end(sequence)
    pool.retire(plan.number)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[SchedulerLimits, int, list[Arrival]]:
    """Limits, pages in the pool, and requests that each fit in it, in order of arrival."""
    limits = SchedulerLimits(
        page_size=draw(st.sampled_from([1, 2, 4, 8])),
        max_running=draw(st.integers(1, 8)),
        max_step_tokens=draw(st.integers(1, 24)),
    )
    num_pages = draw(st.integers(2, 16))
    capacity = num_pages * limits.page_size
    arrivals = []
    for _ in range(draw(st.integers(1, 10))):
        prompt_len = draw(st.integers(1, capacity))
        # The last token is never fed back, so it needs no slot.
        arrivals.append(
            Arrival(
                round=draw(st.integers(0, 20)),
                prompt=tuple(draw(st.binary(min_size=prompt_len, max_size=prompt_len))),
                max_tokens=draw(st.integers(1, min(20, capacity - prompt_len + 1))),
            )
        )
    return limits, num_pages, sorted(arrivals, key=lambda arrival: arrival.round)


@settings(
    derandomize=True,
    database=None,
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(workloads(), st.sampled_from([1, 2]))
def test_batched_sequences_get_the_tokens_of_one_at_a_time(
    workload: tuple[SchedulerLimits, int, list[Arrival]], depth: int
) -> None:
    limits, num_pages, arrivals = workload
    pool = PagePool(num_pages)
    scheduler = Scheduler(pool, limits)
    batched = play(scheduler, pool, FakeRunner(num_pages, limits.page_size), arrivals, depth)
    simple = play(
        OneAtATime(num_pages),
        PagePool(num_pages),
        FakeRunner(num_pages, limits.page_size),
        arrivals,
        depth=1,
    )
    assert batched.outputs == simple.outputs
    assert len(batched.outputs) == len(arrivals)
    num_computed = sum(batched.num_fed.values())
    assert num_computed - scheduler.num_recomputed_tokens == sum(simple.num_fed.values())
    assert pool.num_free + scheduler.tree.num_unused == num_pages
