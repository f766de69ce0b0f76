"""Decode and prefill in one step: neither starves, and nothing waits for what it does not need."""

import pytest

from tests.scheduler.kit import Steps, fed, is_ended, is_running, is_waiting, num_held
from trioserve.scheduler.plan import StepPlan
from trioserve.scheduler.sequence import Sequence


def test_decode_and_prefill_share_a_step() -> None:
    steps = Steps(max_step_tokens=16)
    chatting, arriving = steps.add(3), steps.add(40)
    assert steps.step() == {chatting: 3, arriving: 13}
    assert steps.step() == {chatting: 1, arriving: 15}


def test_a_step_samples_only_where_a_sequence_has_caught_up() -> None:
    steps = Steps(max_step_tokens=16)
    chatting, arriving = steps.add(3), steps.add(26)
    assert sampled(steps.launch()) == [chatting]
    steps.finish()
    # 13 of 26 are left, and the step has room for 15.
    assert sampled(steps.launch()) == [chatting, arriving]
    steps.finish()
    assert chatting.num_output == 2
    assert arriving.num_output == 1


def test_steadily_arriving_long_prompts_never_keep_a_decoding_sequence_waiting() -> None:
    steps = Steps(num_pages=400, max_step_tokens=16, max_running=4)
    chatting = steps.add(2)
    for number in range(50):
        if number % 4 == 0:
            steps.add(100, max_tokens=1)
        num_before = chatting.num_output
        rows = steps.step()
        assert chatting.num_output == num_before + 1
        assert sum(rows.values()) <= 16


def test_endless_decoding_sequences_never_keep_a_new_prompt_waiting() -> None:
    steps = Steps(num_pages=400, max_step_tokens=8, max_running=17)
    chatting = [steps.add(1, max_tokens=90) for _ in range(16)]
    steps.step()
    assert all(is_running(sequence) for sequence in chatting)
    arriving = steps.add(8)
    # A quarter of the step is its own: 8 tokens in chunks of 2, then the first one is sampled.
    for _ in range(4):
        rows = steps.step()
        assert rows[arriving] == 2
        assert all(rows[sequence] == 1 for sequence in chatting)
    assert arriving.num_output == 1


def test_prompts_are_prefilled_in_order_of_arrival() -> None:
    steps = Steps(max_step_tokens=10)
    first, second, third = steps.add(12), steps.add(9), steps.add(9)
    assert steps.step() == {first: 10}
    assert steps.step() == {first: 2, second: 8}
    # `first` decodes; the last token of `second` counts as decode too.
    assert steps.step() == {first: 1, second: 1, third: 8}


def test_slots_are_given_in_order_of_arrival() -> None:
    steps = Steps(max_running=2)
    sequences = [steps.add(1, max_tokens=3) for _ in range(6)]
    started: list[Sequence] = []
    while not all(is_ended(sequence) for sequence in sequences):
        started.extend(sequence for sequence in steps.step() if sequence not in started)
        assert steps.scheduler.num_running <= 2
    assert started == sequences
    steps.check_idle()


def test_a_small_request_does_not_overtake_a_large_one_that_waits_for_pages() -> None:
    steps = Steps(num_pages=10, page_size=4)
    running = steps.add(16, max_tokens=5)
    large, small = steps.add(30, max_tokens=2), steps.add(1, max_tokens=1)
    while not is_ended(running):
        assert set(steps.step()) == {running}
        assert is_waiting(small)
    assert large in steps.step()


@pytest.mark.case(94)
@pytest.mark.parametrize("chunk", [1, 3, 4, 5, 16])
def test_a_chunked_prompt_holds_no_more_pages_than_its_tokens_need(chunk: int, depth: int) -> None:
    steps = Steps(num_pages=32, page_size=4, max_step_tokens=chunk)
    sequence = steps.add(90, max_tokens=10)
    while steps.turn(depth):
        assert num_held(sequence) == -(-sequence.num_planned // 4)
    assert is_ended(sequence)
    steps.check_idle()


def test_chunks_feed_each_position_once_and_in_order(depth: int) -> None:
    steps = Steps(max_step_tokens=7)
    sequence = steps.add(30, max_tokens=12)
    plans: list[StepPlan] = []
    next_position = 0
    while True:
        while len(steps.in_flight) < depth and (plan := steps.launch()) is not None:
            plans.append(plan)
        if not steps.in_flight:
            break
        steps.finish()
    for row in (row for plan in plans for row in plan.rows):
        assert row.start == next_position
        next_position = row.end
    assert next_position == 30 + 12 - 1, "the last token is never fed back"
    assert is_ended(sequence)


def test_the_second_step_in_flight_carries_the_token_that_the_first_samples() -> None:
    steps = Steps()
    sequence = steps.add(3)
    first, second = steps.launch(), steps.launch()
    assert first is not None
    assert second is not None
    assert [row.is_carried for row in first.rows] == [False]
    assert [(row.is_carried, row.token_ids, row.start) for row in second.rows] == [(True, (), 3)]
    assert sequence.num_in_flight == 2
    steps.finish()
    assert sequence.num_in_flight == 1


def test_no_step_is_planned_past_the_last_token() -> None:
    steps = Steps()
    sequence = steps.add(3, max_tokens=2)
    assert fed(steps.launch()) == {sequence: 3}
    assert fed(steps.launch()) == {sequence: 1}
    assert steps.launch() is None
    steps.finish()
    assert steps.launch() is None
    steps.finish()
    assert is_ended(sequence)
    steps.check_idle()


def sampled(plan: StepPlan | None) -> list[Sequence]:
    assert plan is not None
    return [row.sequence for row in plan.rows if row.is_sampled]
