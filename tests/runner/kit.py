"""What the runner's tests share: a decoder that the test can see through, and rows for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from attrs import define, field

from trioserve.core import PageId, SamplingParams, StepNumber
from trioserve.scheduler.plan import PlanRow, StepPlan

if TYPE_CHECKING:
    from torch import Tensor

    from trioserve.device.base import StepResult
    from trioserve.model.decoder import DecoderInput
    from trioserve.runner.runner import ModelRunner
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
    """After token t comes t + 1; a token of `poison` gives NaN. Keeps copies of its inputs.

    The final state of a row is (its token, its position). Its logits are 3 for the next token, 2
    for the one after that, and so on down to 0.
    """

    pages: Pages = field(factory=Pages)
    poison: int = -1
    inputs: list[dict[str, list[Any]]] = field(factory=list)
    head_rows: list[int] = field(factory=list)

    def forward(self, batch: DecoderInput) -> Tensor:
        names = ("token_ids", "positions", "slots", "row_sequence", "page_table", "output_rows")
        self.inputs.append({name: getattr(batch, name).tolist() for name in names})
        states = torch.stack((batch.token_ids, batch.positions.long()), dim=1)
        return states[batch.output_rows].float()

    def head(self, hidden: Tensor) -> Tensor:
        self.head_rows.append(len(hidden))
        token_ids = hidden[:, 0].long()
        logits = torch.zeros(len(token_ids), VOCAB)
        for place in range(3):
            logits[torch.arange(len(token_ids)), (token_ids + 1 + place) % VOCAB] = 3.0 - place
        logits[token_ids == self.poison] = torch.nan
        return logits


@define(eq=False)
class Anything:
    """Stands for a sequence, of which a runner wants the identity, and whether it draws at all."""

    max_tokens: int = 100


def row(
    sequence: Anything,
    start: int,
    token_ids: tuple[int, ...] = (),
    *,
    pages: tuple[int, ...],
    is_sampled: bool = True,
    sampling: SamplingParams = GREEDY,
    **asked: Any,
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
        **asked,
    )


def plan(number: int, *rows: PlanRow) -> StepPlan:
    return StepPlan(StepNumber(number), rows)


def run(runner: ModelRunner, step_plan: StepPlan) -> StepResult:
    """Stage and launch one step: its result."""
    step = runner.stage(step_plan)
    step.launch()
    return step.result()
