"""`StepReading`: what a step's outputs come to: tokens drawn, logprobs and states read."""

from typing import TYPE_CHECKING

from attrs import define, field

from trioserve.core import TokenLogprobs
from trioserve.device.base import RowFailure, RowReadout, StepResult
from trioserve.errors import RequestFailed
from trioserve.sampling.logprobs import read_logprobs
from trioserve.sampling.row import Draw, Floats, require_finite
from trioserve.sampling.sampler import draw_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trioserve.runner.staging import Output
    from trioserve.scheduler.plan import PlanRow, StepPlan


@define(eq=False)
class StepReading:
    """Made by the runner for one step; takes its outputs one by one, in any blocks.

    All keys are plan rows. A row that fails gives nothing, whatever was read of it before.
    """

    plan: "StepPlan"
    carried_ids: dict[int, int]
    """The tokens that the step before sampled for rows of this one."""
    failures: dict[int, str]
    """Messages by row: those known before the step, and what comes."""
    allowed: "Mapping[int, memoryview]" = field(factory=dict)
    """The tokens that a row may draw, where its plan has a mask."""
    token_ids: dict[int, int] = field(init=False, factory=dict)
    _prompt: dict[int, list[TokenLogprobs]] = field(init=False, factory=dict)
    _sampled: dict[int, TokenLogprobs] = field(init=False, factory=dict)
    _vectors: dict[int, Floats] = field(init=False, factory=dict)

    def read(self, output: "Output", logits: Floats, hidden: Floats) -> None:
        """Take one output: its logits [V] and its state [H], which are only read."""
        if output.row in self.failures:
            return
        row = self.plan.rows[output.row]
        try:
            require_finite(logits)
            if output.target_id is None:
                self._read_end(output.row, row, logits, hidden)
            else:
                target = read_logprobs(logits, output.target_id, row.readout)
                self._prompt.setdefault(output.row, []).append(target)
        except RequestFailed as error:
            self.failures[output.row] = str(error)

    def result(self) -> StepResult:
        """All of it, once every output was read."""
        asked = self._prompt.keys() | self._sampled.keys() | self._vectors.keys()
        readouts = {
            index: RowReadout(
                prompt=tuple(self._prompt.get(index, ())),
                sampled=self._sampled.get(index),
                vector=self._vectors.get(index),
            )
            for index in asked - self.failures.keys()
        }
        return StepResult(
            tuple(self.token_ids.get(index) for index in range(len(self.plan.rows))),
            tuple(RowFailure(index, message) for index, message in self.failures.items()),
            readouts,
        )

    def _read_end(self, index: int, row: "PlanRow", logits: Floats, hidden: Floats) -> None:
        readout = row.readout
        if row.is_sampled:
            token_id = draw_token(logits, self._draw(index, row))
            self.token_ids[index] = token_id
            if readout.num_top is not None or readout.token_ids:
                self._sampled[index] = read_logprobs(logits, token_id, readout)
        if readout.has_hidden_state:
            # A copy: the whole step's states would live as long as this one.
            self._vectors[index] = hidden.copy()

    def _draw(self, index: int, row: "PlanRow") -> Draw:
        carried = (self.carried_ids[index],) if row.is_carried else ()
        return Draw(
            row.sampling,
            row.sample_index,
            row.end,
            num_prompt=row.num_prompt,
            history=(*row.history, *carried) if row.sampling.has_penalties else (),
            masked_ids=row.masked_ids,
            allowed=self.allowed.get(index),
        )
