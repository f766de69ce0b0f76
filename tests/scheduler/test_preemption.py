"""Shortage of pages: who gives way, what becomes of it, and what must not happen twice.

Most tests fill a small pool with sequences of known sizes; pages hold four tokens.
"""

import pytest

from tests.scheduler.kit import Steps, fed, is_ended, is_running, is_waiting, num_held


def test_the_newest_gives_way_and_the_oldest_goes_on(depth: int) -> None:
    steps = Steps(num_pages=6, page_size=4)
    old, middle, new = (steps.add(4, max_tokens=12) for _ in range(3))
    while steps.scheduler.num_preemptions == 0:
        assert steps.turn(depth)
    assert is_waiting(new)
    assert is_running(old)
    assert is_running(middle)
    assert new.num_preemptions == 1


def test_a_sequence_is_never_preempted_for_a_newer_one(depth: int) -> None:
    steps = Steps(num_pages=8, page_size=2, max_step_tokens=8)
    sequences = [steps.add(3, max_tokens=10) for _ in range(6)]
    for _ in range(200):
        before = {sequence: sequence.num_preemptions for sequence in sequences}
        if not steps.turn(depth):
            break
        preempted = [held for held in sequences if held.num_preemptions > before[held]]
        running = [held for held in sequences if is_running(held) and held not in preempted]
        for loser in preempted:
            assert running, "somebody must have gained by it"
            assert min(held.id for held in running) < loser.id
    assert all(is_ended(sequence) for sequence in sequences)
    assert sequences[0].num_preemptions == 0
    steps.check_idle()


def test_the_newest_in_need_waits_rather_than_take_from_an_older_one() -> None:
    steps = Steps(num_pages=5, page_size=4)
    old, new = steps.add(7, max_tokens=9), steps.add(4, max_tokens=12)
    steps.step()
    assert (num_held(old), num_held(new)) == (2, 1)
    steps.step(4)
    assert (num_held(old), num_held(new)) == (3, 2)
    while num_held(new) * 4 > new.num_planned:
        steps.step()
    # `new` needs a page, the pool is full, and the only other sequence is older.
    assert steps.step() == {old: 1}
    assert is_running(new)
    assert num_held(new) == 2
    assert steps.scheduler.num_preemptions == 0


def test_a_preempted_sequence_goes_back_to_its_place_in_the_queue() -> None:
    steps = Steps(num_pages=4, page_size=4, max_running=2)
    _old, new = steps.add(4), steps.add(4)
    later = steps.add(1)
    steps.step(6)
    assert is_waiting(new)
    assert is_waiting(later)
    while not is_running(new):
        assert not is_running(later)
        steps.scheduler.end(_old)
        steps.step()


def test_a_preempted_sequence_computes_its_tokens_again_and_no_others() -> None:
    steps = Steps(num_pages=4, page_size=4)
    old, new = steps.add(4, max_tokens=8), steps.add(4, max_tokens=8)
    steps.step(6)
    assert is_waiting(new)
    assert new.num_output == 5
    assert new.num_planned == new.num_in_flight == 0
    while not is_ended(old):
        assert steps.step() == {old: 1}
    assert steps.step() == {new: 9}
    # The ninth was sampled before and never fed: it is new.
    assert steps.scheduler.num_recomputed_tokens == 8
    steps.step(2)
    assert is_ended(new)
    steps.check_idle()


def test_a_token_in_flight_for_a_preempted_sequence_is_void() -> None:
    steps = Steps(num_pages=4, page_size=4)
    old, new = steps.add(4), steps.add(4)
    steps.step(4)
    assert fed(steps.launch()) == {old: 1, new: 1}
    # One step is in flight; the next page of `old` takes those of `new` away.
    assert fed(steps.launch()) == {}
    assert is_waiting(new)
    assert new.num_in_flight == 0
    num_output = new.num_output
    steps.finish()
    assert new.num_output == num_output
    assert fed(steps.launch()) == {old: 1}


def test_one_shortage_preempts_once_while_the_pages_are_in_quarantine() -> None:
    steps = Steps(num_pages=6, page_size=4)
    old, middle, new = (steps.add(4) for _ in range(3))
    steps.step(4)
    assert steps.launch() is not None
    # All three need a third page and none is free. The two pages of `new` will do for the other
    # two, but not before the step in flight, which names them, has retired.
    assert steps.launch() is None
    assert steps.launch() is None
    assert steps.scheduler.num_preemptions == new.num_preemptions == 1
    assert steps.pool.statistics().quarantined == 2
    steps.finish()
    assert fed(steps.launch()) == {old: 1, middle: 1}
    assert steps.scheduler.num_preemptions == 1


def test_a_waiting_prompt_is_not_admitted_over_a_running_one_that_lacks_pages(depth: int) -> None:
    # Eight decoding sequences take a page each while a long prompt is half-way in; what is left is
    # too little for its next chunk, but enough for a small newcomer. It was admitted and preempted
    # again in every step, computing its prompt anew each time.
    steps = Steps(num_pages=34, page_size=8, max_running=16, max_step_tokens=40)
    for _ in range(8):
        steps.add(1, max_tokens=60)
    for _ in range(4):
        assert steps.turn(depth)
    halfway = steps.add(32 * 6, max_tokens=2)
    for _ in range(4):
        assert steps.turn(depth)
    small = steps.add(1, max_tokens=30)
    while steps.turn(depth):
        assert halfway.num_preemptions <= 1
        assert small.num_preemptions <= 1
    assert is_ended(halfway)
    assert is_ended(small)
    steps.check_idle()


def test_nothing_newer_takes_the_pages_that_an_older_sequence_waits_for() -> None:
    steps = Steps(num_pages=12, page_size=4, max_step_tokens=40)
    oldest = steps.add(1)
    assert fed(steps.launch()) == {oldest: 1}
    chunky = steps.plant(prompt_len=33, num_planned=16)
    between = steps.plant(prompt_len=9, num_planned=8)
    newest = steps.plant(prompt_len=8, num_planned=7)
    # `chunky` needs five pages, three are free and two come from `newest`. `between` needs one:
    # if it took a free one, `chunky` would lack it in the next plan and preempt once more.
    assert fed(steps.launch()) == {oldest: 1}
    assert is_waiting(newest)
    steps.finish()
    assert fed(steps.launch()) == {oldest: 1, chunky: 17}
    assert is_running(between)
    assert steps.scheduler.num_preemptions == 1


def test_a_second_shortage_does_not_count_on_the_pages_of_the_first() -> None:
    steps = Steps(num_pages=13, page_size=4, max_step_tokens=40)
    oldest = steps.add(1)
    assert fed(steps.launch()) == {oldest: 1}
    chunky = steps.plant(prompt_len=33, num_planned=16)
    between = steps.plant(prompt_len=9, num_planned=8)
    small, newest = steps.plant(prompt_len=4, num_planned=3), steps.plant(8, num_planned=7)
    # Three free and the two of `newest` are for `chunky`, so `between` needs the one of `small`.
    assert fed(steps.launch()) == {oldest: 1}
    assert is_waiting(newest)
    assert is_waiting(small)
    steps.finish()
    assert fed(steps.launch()) == {oldest: 1, chunky: 17, between: 1}


def test_a_request_that_fills_the_pool_exactly_runs_alone(depth: int) -> None:
    steps = Steps(num_pages=4, page_size=4)
    filling = steps.add(8, max_tokens=9)
    small = steps.add(1, max_tokens=2)
    is_alone = True
    while not is_ended(filling):
        assert steps.turn(depth)
        if num_held(filling) == 4:
            is_alone = is_alone and num_held(small) == 0
    assert is_alone
    assert filling.num_preemptions == 0
    while steps.turn(depth):
        pass
    assert is_ended(small)
    steps.check_idle()


@pytest.mark.parametrize("prompt_len", [1, 8, 15, 16])
def test_a_request_that_fills_the_pool_does_not_wait_for_a_page_beyond_it(
    prompt_len: int, depth: int
) -> None:
    steps = Steps(num_pages=4, page_size=4, max_step_tokens=5)
    filling = steps.add(prompt_len, max_tokens=17 - prompt_len)
    while steps.turn(depth):
        pass
    assert is_ended(filling)
    steps.check_idle()


@pytest.mark.case(95)
def test_eight_requests_over_a_pool_for_two_and_a_half_all_finish(depth: int) -> None:
    steps = Steps(num_pages=10, page_size=4, max_step_tokens=8)
    sequences = [steps.add(6, max_tokens=10) for _ in range(8)]
    finished = []
    for _ in range(1000):
        if not steps.turn(depth):
            break
        finished.extend(held for held in sequences if is_ended(held) and held not in finished)
    assert finished == sequences
    for number_of_older, sequence in enumerate(sequences):
        # Readmission needs room for all its tokens, so an older one must have ended in between.
        assert sequence.num_preemptions <= number_of_older
    steps.check_idle()


def test_nothing_in_flight_and_work_to_do_always_gives_a_plan() -> None:
    steps = Steps(num_pages=5, page_size=3, max_step_tokens=4, max_running=3)
    sequences = [steps.add(length, max_tokens=16 - length) for length in (15, 1, 7, 12, 3, 15)]
    while not all(is_ended(sequence) for sequence in sequences):
        steps.step()
    steps.check_idle()
