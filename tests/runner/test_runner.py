"""Staging, carried tokens and failing rows, on a decoder that the test can see through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from attrs import define, field

from trioserve.core import PageId, SamplingParams, StepNumber
from trioserve.runner.runner import ModelRunner
from trioserve.scheduler.plan import PlanRow, StepPlan

if TYPE_CHECKING:
    from torch import Tensor

    from trioserve.model.decoder import DecoderInput
    from trioserve.scheduler.sequence import Sequence

VOCAB = 50
PAGE_SIZE = 4
GREEDY = SamplingParams(temperature=0.0)


@define
class Pages:
    page_size: int = PAGE_SIZE
    num_pages: int = 16


@define
class SuccessorDecoder:
    """After token t comes t + 1; a token of `poison` gives NaN. Keeps copies of its inputs."""

    pages: Pages = field(factory=Pages)
    poison: int = -1
    inputs: list[dict[str, list[Any]]] = field(factory=list)

    def forward(self, batch: DecoderInput) -> Tensor:
        names = ("token_ids", "positions", "slots", "row_sequence", "page_table", "sampled_rows")
        self.inputs.append({name: getattr(batch, name).tolist() for name in names})
        last_tokens = batch.token_ids[batch.sampled_rows]
        logits = torch.zeros(len(last_tokens), VOCAB)
        logits[torch.arange(len(last_tokens)), (last_tokens + 1) % VOCAB] = 1.0
        logits[last_tokens == self.poison] = torch.nan
        return logits


class Anything:
    """Stands for a sequence, of which a runner wants the identity only."""


def row(
    sequence: Anything,
    start: int,
    token_ids: tuple[int, ...] = (),
    *,
    pages: tuple[int, ...],
    is_sampled: bool = True,
    sampling: SamplingParams = GREEDY,
) -> PlanRow:
    """A plan row; without token ids it carries the token of the step before."""
    return PlanRow(
        sequence=cast("Sequence", sequence),
        epoch=0,
        start=start,
        token_ids=token_ids,
        is_carried=not token_ids,
        page_ids=tuple(PageId(page) for page in pages),
        is_sampled=is_sampled,
        sampling=sampling,
        sample_index=0,
    )


@pytest.fixture
def decoder() -> SuccessorDecoder:
    return SuccessorDecoder()


@pytest.fixture
def runner(decoder: SuccessorDecoder) -> ModelRunner:
    return ModelRunner(cast("Any", decoder), max_tokens=16, max_sequences=4, max_len=32)


def plan(number: int, *rows: PlanRow) -> StepPlan:
    return StepPlan(StepNumber(number), rows)


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
            "sampled_rows": [0, 5],
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
