"""Staging, carried tokens and failing rows, on a decoder that the test can see through."""

from typing import Any

import pytest

from tests.runner.kit import VOCAB, Anything, SuccessorDecoder, plan, row, run
from trioserve.core import ReadoutParams, SamplingParams
from trioserve.runner.runner import ModelRunner


def test_a_mixed_plan_becomes_the_arrays_of_one_step(
    runner: ModelRunner, decoder: SuccessorDecoder
) -> None:
    first, second, third = Anything(), Anything(), Anything()
    step = runner.stage(
        plan(
            1,
            row(first, 6, (40,), pages=(9, 2)),
            row(second, 2, (1, 2, 3), pages=(5, 7), is_sampled=False),
            row(third, 0, (7, 8), pages=(3,)),
        )
    )
    step.launch()
    assert decoder.inputs == [
        {
            "token_ids": [40, 1, 2, 3, 7, 8],
            "positions": [6, 2, 3, 4, 0, 1],
            "slots": [2 * 4 + 2, 5 * 4 + 2, 5 * 4 + 3, 7 * 4 + 0, 3 * 4 + 0, 3 * 4 + 1],
            "row_sequence": [0, 1, 1, 1, 2, 2],
            "page_table": [
                [9, 2, 0, 0, 0, 0, 0, 0],
                [5, 7, 0, 0, 0, 0, 0, 0],
                [3, 0, 0, 0, 0, 0, 0, 0],
            ],
            "output_rows": [0, 5],
        }
    ]
    assert step.result().token_ids == (41, None, 9)


def test_a_carried_token_is_the_one_of_the_step_before(
    runner: ModelRunner, decoder: SuccessorDecoder
) -> None:
    first, second = Anything(), Anything()
    steps = [
        runner.stage(plan(1, row(first, 0, (10,), pages=(1,)), row(second, 0, (20,), pages=(2,)))),
        # Staged before the first step has run, in another order.
        runner.stage(plan(2, row(second, 1, pages=(2,)), row(first, 1, pages=(1,)))),
    ]
    for step in steps:
        step.launch()
    assert decoder.inputs[1]["token_ids"] == [21, 11]
    assert [step.result().token_ids for step in steps] == [(11, 21), (22, 12)]


def test_more_steps_may_be_staged_than_there_are_buffers(runner: ModelRunner) -> None:
    sequence = Anything()
    steps = [runner.stage(plan(1, row(sequence, 0, (10,), pages=(1,))))]
    steps += [runner.stage(plan(n, row(sequence, n - 1, pages=(1, 2)))) for n in range(2, 7)]
    for step in steps:
        step.launch()
    assert [step.result().token_ids for step in steps] == [(11 + n,) for n in range(6)]


def test_a_step_that_was_staged_and_dropped_harms_no_later_one(runner: ModelRunner) -> None:
    sequence = Anything()
    for _ in range(5):
        runner.stage(plan(1, row(sequence, 0, (3,), pages=(1,))))
    step = runner.stage(plan(1, row(sequence, 0, (10,), pages=(1,))))
    step.launch()
    assert step.result().token_ids == (11,)


def test_non_finite_logits_fail_their_row_alone(
    runner: ModelRunner, decoder: SuccessorDecoder
) -> None:
    decoder.poison = 20
    first, second, third = Anything(), Anything(), Anything()
    step = runner.stage(
        plan(
            1,
            row(first, 0, (5, 6), pages=(1,), is_sampled=False),
            row(second, 0, (20,), pages=(2,)),
            row(third, 0, (30,), pages=(3,)),
        )
    )
    carried = runner.stage(plan(2, row(second, 1, pages=(2,)), row(third, 1, pages=(3,))))
    step.launch()
    carried.launch()
    result = step.result()
    assert result.token_ids == (None, None, 31)
    assert [failure.row for failure in result.failures] == [1]
    assert "non-finite" in result.failures[0].message
    # The step that was staged on top has nothing to carry for that row; the other goes on.
    assert carried.result().token_ids == (None, 32)
    assert [failure.row for failure in carried.result().failures] == [0]


def test_a_row_whose_tokens_are_all_masked_fails_alone(runner: ModelRunner) -> None:
    masked, other = Anything(), Anything()
    asked: dict[str, Any] = {
        "masked_ids": frozenset(range(VOCAB)),
        "readout": ReadoutParams(num_top=2),
    }
    steps = [
        runner.stage(
            plan(
                1,
                row(masked, 0, (5,), pages=(1,), **asked),
                row(other, 0, (6,), pages=(2,), readout=ReadoutParams(num_top=2)),
            )
        ),
        runner.stage(plan(2, row(masked, 1, pages=(1,)), row(other, 1, pages=(2,)))),
    ]
    for step in steps:
        step.launch()
    first, second = (step.result() for step in steps)
    assert first.token_ids == (None, 7)
    assert [(failure.row, failure.message) for failure in first.failures] == [
        (0, "every token is masked: there is none to draw")
    ]
    assert set(first.readouts) == {1}
    assert second.token_ids == (None, 8)
    assert [failure.row for failure in second.failures] == [0]


def test_non_finite_logits_at_a_prompt_target_fail_the_row(
    runner: ModelRunner, decoder: SuccessorDecoder
) -> None:
    decoder.poison = 2
    readout = ReadoutParams(num_top=0, prompt_from=1)
    result = run(
        runner,
        plan(
            1,
            row(
                Anything(),
                0,
                (1, 2, 3),
                pages=(1,),
                num_prompt=3,
                readout=readout,
                target_start=1,
                target_ids=(2, 3),
            ),
            # Its prompt has the same token, but nothing is read there.
            row(Anything(), 0, (2, 3), pages=(2,)),
        ),
    )
    assert result.token_ids == (None, 4)
    assert [failure.row for failure in result.failures] == [0]
    assert not result.readouts


def test_a_plan_without_sampled_rows_gives_no_tokens(runner: ModelRunner) -> None:
    step = runner.stage(plan(1, row(Anything(), 0, (1, 2), pages=(1,), is_sampled=False)))
    step.launch()
    assert step.result().token_ids == (None,)


def test_noise_depends_on_the_position_of_the_new_token(runner: ModelRunner) -> None:
    # The same position is reached by one chunk or by two; a preempted sequence draws again.
    sampling = SamplingParams(temperature=2.0, seed=77)
    whole = runner.stage(plan(1, row(Anything(), 0, (4, 5, 6), pages=(1,), sampling=sampling)))
    rest = runner.stage(plan(2, row(Anything(), 2, (6,), pages=(1,), sampling=sampling)))
    whole.launch()
    rest.launch()
    assert whole.result().token_ids == rest.result().token_ids


def test_staging_checks_that_the_pages_cover_the_tokens(runner: ModelRunner) -> None:
    with pytest.raises(AssertionError):
        runner.stage(plan(1, row(Anything(), 3, (1, 2), pages=(1,))))
