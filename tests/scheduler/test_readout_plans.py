"""What rows carry for sampling and reading: history, mask, and the prompt tokens to read.

The plan alone must say it, because the runner keeps nothing of a sequence but its last token.
"""

from typing import Any

import pytest

from tests.scheduler.kit import TOKEN, Steps, is_ended, is_running, is_waiting
from trioserve.core import ReadoutParams, SamplingParams
from trioserve.scheduler.plan import PlanRow, StepPlan
from trioserve.scheduler.sequence import Sequence

PENALTIES = [
    SamplingParams(frequency_penalty=0.5),
    SamplingParams(presence_penalty=-0.5),
    SamplingParams(repetition_penalty=1.1),
]
END_IDS = frozenset({2, 3})


def add(steps: Steps, prompt_len: int, max_tokens: int = 100, **asked: Any) -> Sequence:
    """Enqueue a sequence with what it asks for; the token at position p of its prompt is p."""
    sequence = steps.add(prompt_len, max_tokens)
    sequence.prompt_ids = tuple(range(prompt_len))
    for name, value in asked.items():
        setattr(sequence, name, value)
    return sequence


def rows_of(sequence: Sequence, plans: list[StepPlan]) -> list[PlanRow]:
    return [row for plan in plans for row in plan.rows if row.sequence is sequence]


def play(steps: Steps, depth: int) -> list[StepPlan]:
    """Run to the end, with `depth` steps in flight: all plans."""
    plans: list[StepPlan] = []
    while True:
        while len(steps.in_flight) < depth and (plan := steps.launch()) is not None:
            plans.append(plan)
        if not steps.in_flight:
            return plans
        steps.finish()


@pytest.mark.parametrize("sampling", PENALTIES)
def test_history_is_all_that_comes_before_the_token_drawn(
    sampling: SamplingParams, depth: int
) -> None:
    steps = Steps(max_step_tokens=4)
    sequence = add(steps, 10, max_tokens=6, sampling=sampling)
    rows = rows_of(sequence, play(steps, depth))
    assert is_ended(sequence)
    everything = (*range(10), *(TOKEN,) * 6)
    sampled = [row for row in rows if row.is_sampled]
    assert len(sampled) == 6
    assert any(row.is_carried for row in sampled) == (depth == 2)
    for row in sampled:
        assert (*row.history, *(TOKEN,) * row.is_carried) == everything[: row.end]
        assert row.num_prompt == 10
    # A chunk that draws nothing has no use for it.
    assert all(row.history == () for row in rows if not row.is_sampled)


def test_rows_without_penalties_carry_no_history(depth: int) -> None:
    steps = Steps()
    sampling = SamplingParams(logit_bias=((3, 1.0),), seed=5)
    sequence = add(steps, 10, max_tokens=6, sampling=sampling)
    assert [row.history for row in rows_of(sequence, play(steps, depth))] == [()] * 6


def test_history_does_not_change_with_the_sequence() -> None:
    steps = Steps()
    sequence = add(steps, 3, sampling=PENALTIES[0])
    plan = steps.launch()
    assert plan is not None
    steps.finish()
    steps.step()
    assert sequence.num_output == 2
    assert plan.rows[0].history == (0, 1, 2)


def test_history_after_a_preemption_is_that_of_an_undisturbed_sequence(depth: int) -> None:
    steps = Steps(num_pages=6, page_size=4)
    sequences = [add(steps, 4, max_tokens=12, sampling=PENALTIES[0]) for _ in range(3)]
    plans = play(steps, depth)
    assert steps.scheduler.num_preemptions > 0
    for sequence in sequences:
        for row in rows_of(sequence, plans):
            if row.is_sampled:
                whole = (*row.history, *(TOKEN,) * row.is_carried)
                assert whole == (*range(4), *(TOKEN,) * (row.end - 4))


@pytest.mark.parametrize("min_tokens", [0, 1, 3, 6])
def test_end_tokens_are_masked_until_there_are_min_tokens(min_tokens: int, depth: int) -> None:
    steps = Steps(max_step_tokens=4)
    sequence = add(steps, 6, max_tokens=6, min_tokens=min_tokens, end_ids=END_IDS)
    rows = rows_of(sequence, play(steps, depth))
    masks = [row.masked_ids for row in rows if row.is_sampled]
    # The tokens in flight count: at depth 2 the host knows one less than there are.
    assert masks == [END_IDS] * min_tokens + [frozenset()] * (6 - min_tokens)
    assert all(not row.masked_ids for row in rows if not row.is_sampled)


def test_the_mask_after_a_preemption_counts_the_tokens_that_were_kept(depth: int) -> None:
    steps = Steps(num_pages=4, page_size=4)
    old = add(steps, 4, max_tokens=8)
    new = add(steps, 4, max_tokens=8, min_tokens=6, end_ids=END_IDS)
    plans = play(steps, depth)
    assert new.num_preemptions == 1
    assert is_ended(old)
    for row in rows_of(new, plans):
        if row.is_sampled:
            assert row.masked_ids == (END_IDS if row.end < 4 + 6 else frozenset())


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("prompt_from", [1, 2, 5, 9])
@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_each_prompt_token_asked_for_is_the_target_of_one_row(
    chunk: int, prompt_from: int, max_tokens: int, depth: int
) -> None:
    steps = Steps(max_step_tokens=chunk)
    readout = ReadoutParams(num_top=0, prompt_from=prompt_from)
    sequence = add(steps, 10, max_tokens=max_tokens, readout=readout)
    rows = rows_of(sequence, play_ending_at_prompts(steps, depth))
    positions = []
    for row in rows:
        span = range(row.target_start, row.target_start + len(row.target_ids))
        # The logits for position p are those of p - 1, which the same row must feed.
        assert all(row.start <= position - 1 < row.end for position in span)
        assert row.target_ids == tuple(span)
        positions += span
    assert positions == list(range(prompt_from, 10))


def test_a_prompt_of_one_token_has_no_target() -> None:
    steps = Steps()
    add(steps, 1, readout=ReadoutParams(num_top=0, prompt_from=1))
    plan = steps.launch()
    assert plan is not None
    assert plan.rows[0].target_ids == ()


def test_nobody_who_did_not_ask_has_targets(depth: int) -> None:
    steps = Steps(max_step_tokens=7)
    asking = add(steps, 9, max_tokens=3, readout=ReadoutParams(num_top=3, prompt_from=1))
    sampled_only = add(steps, 9, max_tokens=3, readout=ReadoutParams(num_top=3))
    plain = add(steps, 9, max_tokens=3)
    plans = play(steps, depth)
    assert any(row.target_ids for row in rows_of(asking, plans))
    for sequence in (sampled_only, plain):
        assert all(row.target_ids == () for row in rows_of(sequence, plans))


def test_targets_are_planned_again_after_a_preemption(depth: int) -> None:
    # What was read for the first time may have been dropped with the step in flight.
    steps = Steps(num_pages=4, page_size=4, max_step_tokens=6)
    old = add(steps, 4, max_tokens=9)
    readout = ReadoutParams(num_top=0, prompt_from=2)
    new = add(steps, 4, max_tokens=5, readout=readout)
    plans: list[StepPlan] = []
    while new.num_preemptions == 0:
        while len(steps.in_flight) < depth and (plan := steps.launch()) is not None:
            plans.append(plan)
        steps.finish()
    assert is_running(old)
    assert is_waiting(new)
    num_before = len(plans)
    plans += play(steps, depth)
    for part in (plans[:num_before], plans[num_before:]):
        targets = [token for row in rows_of(new, part) for token in row.target_ids]
        assert targets == [2, 3]


def test_a_sequence_of_no_tokens_is_computed_and_draws_nothing(depth: int) -> None:
    steps = Steps(max_step_tokens=4)
    readout = ReadoutParams(num_top=0, prompt_from=1, has_hidden_state=True)
    sequence = add(steps, 10, max_tokens=0, readout=readout, min_tokens=0, end_ids=END_IDS)
    beside = add(steps, 3, max_tokens=4)
    rows = rows_of(sequence, play_ending_at_prompts(steps, depth))
    assert not any(row.is_sampled for row in rows)
    assert sum(row.num_tokens for row in rows) == 10, "fed once, and then no more"
    assert [row.is_end_read for row in rows] == [False] * (len(rows) - 1) + [True]
    assert sequence.num_in_flight == 0
    assert is_ended(beside)
    steps.check_idle()


def test_only_where_it_asks_is_the_state_at_the_end_of_a_prompt_read() -> None:
    steps = Steps()
    add(steps, 4, max_tokens=0, readout=ReadoutParams(num_top=0, prompt_from=1))
    plan = steps.launch()
    assert plan is not None
    assert not plan.rows[0].is_end_read


def test_recomputing_up_to_the_end_of_the_prompt_reads_no_state() -> None:
    steps = Steps(num_pages=4, page_size=4, max_step_tokens=6)
    old = add(steps, 4, max_tokens=9)
    new = add(steps, 4, readout=ReadoutParams(has_hidden_state=True))
    while new.num_preemptions == 0:
        steps.step()
    steps.scheduler.end(old)
    steps.scheduler._limits = type(steps.scheduler._limits)(4, 8, 4)
    again = steps.launch()
    assert again is not None
    (row,) = again.rows
    assert (row.start, row.end, row.is_sampled) == (0, 4, False)
    assert not row.is_end_read


def play_ending_at_prompts(steps: Steps, depth: int) -> list[StepPlan]:
    """`play`, ending what draws nothing when its prompt was computed, as commit does."""
    plans: list[StepPlan] = []
    while True:
        while len(steps.in_flight) < depth and (plan := steps.launch()) is not None:
            plans.append(plan)
        if not steps.in_flight:
            return plans
        finished = steps.in_flight[0]
        steps.finish()
        for row in finished.rows:
            if row.sequence.max_tokens == 0 and row.end == row.num_prompt:
                steps.scheduler.end(row.sequence)
