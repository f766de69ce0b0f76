"""A sequence whose reader takes nothing: no step, no slot, and its pages go first."""

from tests.scheduler.kit import (
    Steps,
    fed,
    is_ended,
    is_paused,
    is_running,
    is_waiting,
    num_held,
)


def test_a_sequence_without_credit_is_not_planned(depth: int) -> None:
    steps = Steps()
    stalled = steps.add(3, room=5)
    while steps.turn(depth):
        pass
    # Credit covers what the steps in flight may produce: not one token more.
    assert stalled.num_output == 5
    assert steps.readers[stalled].room == 0


def test_a_stalled_sequence_gives_its_slot_to_one_that_waits() -> None:
    steps = Steps(max_running=1)
    stalled, waiting = steps.add(3, room=2), steps.add(3)
    steps.step(2)
    assert is_running(stalled)
    assert steps.step() == {waiting: 3}
    assert is_paused(stalled)
    assert num_held(stalled) == 1, "it keeps its pages while nobody needs them"


def test_a_stalled_sequence_resumes_where_it_stopped() -> None:
    steps = Steps()
    stalled = steps.add(3, max_tokens=6, room=2)
    steps.step(2)
    assert steps.launch() is None
    steps.readers[stalled].room += 2
    assert steps.step() == {stalled: 1}
    assert is_running(stalled)
    assert steps.scheduler.num_recomputed_tokens == 0
    steps.readers[stalled].room += 2
    steps.step(3)
    assert is_ended(stalled)
    steps.check_idle()


def test_a_resumed_sequence_waits_for_a_slot_but_goes_before_new_ones() -> None:
    steps = Steps(max_running=1)
    stalled = steps.add(3, room=1)
    taker = steps.add(3, max_tokens=3)
    newcomer = steps.add(3)
    steps.step(2)
    assert is_running(taker)
    steps.readers[stalled].room += 100
    while not is_ended(taker):
        assert set(steps.step()) == {taker}
    assert steps.step() == {stalled: 1}
    assert is_waiting(newcomer)


def test_a_last_token_in_flight_needs_no_credit_to_keep_its_slot() -> None:
    steps = Steps(max_running=1)
    ending, waiting = steps.add(3, max_tokens=2, room=2), steps.add(3)
    assert fed(steps.launch()) == {ending: 3}
    assert fed(steps.launch()) == {ending: 1}
    assert steps.launch() is None
    assert is_running(ending)
    steps.finish()
    steps.finish()
    assert is_ended(ending)
    assert steps.step() == {waiting: 3}


def test_a_stalled_sequence_is_preempted_before_a_newer_one() -> None:
    steps = Steps(num_pages=6, page_size=4)
    growing, stalled, newest = steps.add(4), steps.add(4, room=2), steps.add(4)
    while steps.scheduler.num_preemptions == 0:
        steps.step()
    assert is_waiting(stalled)
    assert is_running(growing)
    assert is_running(newest)


def test_a_stalled_sequence_is_preempted_even_when_it_is_the_oldest() -> None:
    steps = Steps(num_pages=4, page_size=4)
    stalled, growing = steps.add(4, room=2), steps.add(4)
    while steps.scheduler.num_preemptions == 0:
        steps.step()
    assert is_waiting(stalled)
    assert is_running(growing)


def test_of_two_stalled_sequences_the_newer_gives_way() -> None:
    steps = Steps(num_pages=6, page_size=4)
    older, newer, growing = steps.add(4, room=2), steps.add(4, room=2), steps.add(4)
    while steps.scheduler.num_preemptions == 0:
        steps.step()
    assert is_paused(older)
    assert is_waiting(newer)
    assert is_running(growing)


def test_a_reader_that_came_back_keeps_its_pages_before_a_stalled_one() -> None:
    steps = Steps(num_pages=8, page_size=4, max_running=1)
    stalled, back = steps.add(4, room=2), steps.add(4, room=2)
    growing = steps.add(4)
    steps.step(6)
    assert is_running(growing)
    steps.readers[back].room += 100
    while steps.scheduler.num_preemptions == 0:
        steps.step()
    assert is_waiting(stalled)
    assert is_paused(back)


def test_a_preempted_stalled_sequence_does_not_hold_up_the_queue() -> None:
    steps = Steps(num_pages=6, page_size=4)
    stalled, growing = steps.add(8, room=2), steps.add(4)
    while steps.scheduler.num_preemptions == 0:
        steps.step()
    newcomer = steps.add(1)
    assert newcomer in steps.step()
    assert is_waiting(stalled)
    steps.scheduler.end(growing)
    steps.scheduler.end(newcomer)
    steps.readers[stalled].room += 1
    assert steps.step() == {stalled: 10}


def test_a_new_prompt_takes_the_pages_of_stalled_readers() -> None:
    steps = Steps(num_pages=6, page_size=4)
    stalled = [steps.add(8, room=1) for _ in range(2)]
    steps.step()
    newcomer = steps.add(12)
    assert steps.step() == {newcomer: 12}
    assert is_paused(stalled[0])
    assert is_waiting(stalled[1])


def test_pages_of_stalled_readers_are_not_taken_when_they_would_not_be_enough() -> None:
    steps = Steps(num_pages=8, page_size=4)
    stalled, running = steps.add(8, room=1), steps.add(16, max_tokens=4)
    steps.step(3)
    assert is_paused(stalled)
    large = steps.add(24)
    assert set(steps.step()) == {running}
    assert is_waiting(large)
    assert is_paused(stalled), "preempted in vain"


def test_a_stalled_sequence_may_end_while_its_last_token_is_in_flight() -> None:
    steps = Steps(max_running=1)
    stalled = steps.add(3, room=2)
    assert fed(steps.launch()) == {stalled: 3}
    assert fed(steps.launch()) == {stalled: 1}
    assert steps.launch() is None
    assert is_paused(stalled)
    steps.scheduler.end(stalled)
    steps.finish()
    steps.finish()
    assert stalled.num_output == 0
    steps.check_idle()
