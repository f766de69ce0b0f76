"""`num_over_slots`: what the queue limit of api.md section 8 counts."""

from tests.scheduler.kit import Steps, is_paused


def test_there_is_no_count_while_a_slot_is_free() -> None:
    steps = Steps(max_running=2)
    assert steps.scheduler.num_over_slots is None
    steps.add(3)
    assert steps.scheduler.num_over_slots is None


def test_what_was_admitted_counts_before_a_step_has_included_it() -> None:
    steps = Steps(max_running=2)
    steps.add(3)
    steps.add(3)
    # Both slots are spoken for, nobody waits beyond them; with a queue of 0 the next is refused.
    assert steps.scheduler.num_over_slots == 0
    steps.add(3)
    assert steps.scheduler.num_over_slots == 1


def test_the_count_is_the_same_after_the_step_that_fills_the_slots() -> None:
    steps = Steps(max_running=2)
    for _ in range(5):
        steps.add(3)
    before = steps.scheduler.num_over_slots
    steps.step()
    assert steps.scheduler.num_over_slots == before == 3


def test_an_end_makes_room_at_once() -> None:
    steps = Steps(max_running=1)
    first, _second = steps.add(3), steps.add(3)
    steps.step()
    steps.scheduler.end(first)
    # The one that waited will take the slot; a third would wait behind nobody.
    assert steps.scheduler.num_over_slots == 0


def test_a_preempted_sequence_counts_as_one_that_waits() -> None:
    steps = Steps(num_pages=4, page_size=4, max_running=2)
    old, _new = steps.add(4), steps.add(4)
    steps.step(6)
    assert steps.scheduler.num_preemptions == 1
    assert old.num_preemptions == 0
    assert steps.scheduler.num_running == 1
    assert steps.scheduler.num_over_slots == 0


def test_a_stalled_reader_takes_no_slot_from_a_new_request() -> None:
    steps = Steps(max_running=1)
    stalled = steps.add(3, room=1)
    steps.step()
    assert steps.launch() is None
    assert is_paused(stalled)
    assert steps.scheduler.num_over_slots is None
    steps.add(3)
    # Now the slot is taken and the stalled one waits: for its reader first, then for a slot.
    assert steps.scheduler.num_over_slots == 1


def test_a_reader_that_came_back_counts_again() -> None:
    steps = Steps(max_running=1)
    stalled = steps.add(3, room=1)
    steps.step()
    assert steps.launch() is None
    steps.readers[stalled].room += 5
    assert steps.scheduler.num_over_slots == 0
