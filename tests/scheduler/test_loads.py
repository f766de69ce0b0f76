"""Loads take what can be spared, and the sequences that wait for one are passed over."""

from tests.scheduler.kit import Steps, fed, is_waiting
from trioserve.core import SHARED, CachedTokens
from trioserve.scheduler.loads import PageLoads
from trioserve.scheduler.sequence import Sequence

PROMPT = tuple(range(100, 120))


def begin(steps: Steps) -> tuple[Sequence, PageLoads]:
    """A sequence that waits, and the scheduler's loads."""
    sequence = steps.add(PROMPT, 1, namespace=SHARED)
    sequence.is_sought = True
    return sequence, steps.scheduler.loads


def test_a_load_takes_free_and_unused_pages_but_none_that_is_promised() -> None:
    steps = Steps(num_pages=5)
    steps.add(tuple(range(8)), 1, namespace=SHARED)
    steps.step()
    assert steps.pool.statistics().cached == 2
    sequence, _ = begin(steps)
    supply = steps.scheduler._supply
    for num_promised, num_taken in ((5, 0), (3, 2), (1, 4)):
        loads = PageLoads(supply, lambda promised=num_promised: promised)  # type: ignore[misc]
        load = loads.begin(sequence, len(PROMPT))
        assert len(loads.take(load, 4)) == num_taken
        loads.end(load)
    steps.check()


def test_a_sequence_waits_for_its_load_and_goes_on_from_what_came() -> None:
    steps = Steps(max_step_tokens=64)
    sequence, loads = begin(steps)
    load = loads.begin(sequence, 16)
    other = steps.add(4, 1)
    assert fed(steps.launch()) == {other: 4}
    steps.finish()
    assert len(loads.take(load, 2)) == 2
    steps.check()
    loads.publish(load, 1, 1)
    steps.check()
    assert steps.launch() is None
    assert is_waiting(sequence)
    assert len(loads.take(load, 2)) == 2
    # One of them was damaged.
    loads.publish(load, 0, 1)
    loads.end(load)
    steps.check()
    assert steps.step() == {sequence: 8}
    assert sequence.cached == CachedTokens(host=4, storage=8)
    steps.check_idle()


def test_a_load_is_wanted_as_long_as_its_sequence_waits() -> None:
    steps = Steps()
    sequence, loads = begin(steps)
    load = loads.begin(sequence, 16)
    assert load.is_wanted
    steps.scheduler.end(sequence)
    assert not load.is_wanted
    loads.end(load)
    steps.check_idle()


def test_tiers_are_asked_once_for_each_time_that_a_sequence_comes_into_the_queue() -> None:
    steps = Steps(max_running=1)
    asked: list[Sequence] = []
    steps.scheduler.seek = asked.append
    first, second = steps.add(4), steps.add(5)
    steps.step(2)
    assert asked == [first, second]
    steps.scheduler._preempt(first)
    steps.step()
    assert asked == [first, second, first]
