"""`end`: one way out, from every state, once."""

from collections.abc import Callable

import pytest

from tests.scheduler.kit import Steps, fed, is_ended, is_paused, is_running, is_waiting, num_held
from trioserve.scheduler.sequence import Sequence


def new(steps: Steps) -> Sequence:
    return steps.add(40)


def prefilling(steps: Steps) -> Sequence:
    sequence = steps.add(40)
    steps.step()
    return sequence


def decoding(steps: Steps) -> Sequence:
    sequence = steps.add(4)
    steps.step(3)
    return sequence


def preempted(steps: Steps) -> Sequence:
    older, sequence = steps.add(4 * (steps.num_pages - 4)), steps.add(4)
    while not is_waiting(sequence) or sequence.num_preemptions == 0:
        steps.step()
    steps.scheduler.end(older)
    return sequence


def stalled(steps: Steps) -> Sequence:
    sequence = steps.add(4, room=2)
    steps.step(2)
    assert steps.launch() is None
    assert is_paused(sequence)
    return sequence


def finished(steps: Steps) -> Sequence:
    sequence = steps.add(4, max_tokens=1)
    steps.step()
    return sequence


@pytest.mark.parametrize("reach", [new, prefilling, decoding, preempted, stalled, finished])
def test_end_gives_everything_back_in_every_state_and_is_idempotent(
    reach: Callable[[Steps], Sequence],
) -> None:
    steps = Steps(num_pages=16)
    sequence = reach(steps)
    steps.scheduler.end(sequence)
    steps.check()
    epoch = sequence.epoch
    steps.scheduler.end(sequence)
    assert is_ended(sequence)
    assert sequence.epoch == epoch
    assert num_held(sequence) == 0
    assert steps.launch() is None
    steps.check_idle()


@pytest.mark.parametrize("reach", [prefilling, decoding])
def test_pages_wait_for_the_steps_in_flight_that_name_them(
    reach: Callable[[Steps], Sequence], depth: int
) -> None:
    steps = Steps()
    sequence = reach(steps)
    for _ in range(depth):
        assert sequence in fed(steps.launch())
    num_pages = num_held(sequence)
    steps.scheduler.end(sequence)
    for left in reversed(range(depth)):
        assert steps.pool.statistics().quarantined == num_pages
        steps.finish()
        assert (steps.pool.statistics().quarantined > 0) == (left > 0)
    steps.check_idle()


def test_pages_are_free_at_once_when_no_step_in_flight_names_them() -> None:
    steps = Steps(max_step_tokens=1)
    first, second = steps.add(1), steps.add(1, room=1)
    steps.step(2)
    assert fed(steps.launch()) == {first: 1}
    assert is_paused(second)
    steps.scheduler.end(second)
    assert steps.pool.statistics().quarantined == 0
    steps.finish()


def test_no_later_plan_names_an_ended_sequence(depth: int) -> None:
    steps = Steps(max_running=2)
    sequences = [steps.add(5, max_tokens=6) for _ in range(6)]
    ended: list[Sequence] = []
    for number in range(40):
        while len(steps.in_flight) < depth and (plan := steps.launch()) is not None:
            assert not set(fed(plan)) & set(ended)
        if not steps.in_flight:
            break
        if number % 3 == 0:
            victim = next((held for held in sequences if not is_ended(held)), None)
            if victim is not None:
                steps.scheduler.end(victim)
                ended.append(victim)
        steps.finish()
    steps.check_idle()


def test_the_slot_of_an_ended_sequence_is_taken_by_the_next_plan() -> None:
    steps = Steps(max_running=1)
    first, second = steps.add(3), steps.add(3)
    assert fed(steps.launch()) == {first: 3}
    steps.scheduler.end(first)
    # Although the step that computes `first` is still in flight.
    assert fed(steps.launch()) == {second: 3}
    assert is_running(second)


def test_pages_in_quarantine_are_not_leased_to_the_next_one() -> None:
    steps = Steps(num_pages=2, page_size=4)
    first, second = steps.add(4, max_tokens=2), steps.add(4, max_tokens=2)
    assert fed(steps.launch()) == {first: 4}
    steps.scheduler.end(first)
    assert steps.launch() is None, "one page is free, and one is still being written to"
    steps.finish()
    assert fed(steps.launch()) == {second: 4}
