"""`ModelRunner`: turns each step plan into a step that computes logits and draws tokens."""

from typing import TYPE_CHECKING

import torch

from trioserve.device.base import RowFailure, StepResult
from trioserve.runner.staging import Staging
from trioserve.sampling.sampler import Draw, sample

if TYPE_CHECKING:
    from trioserve.model.decoder import Decoder
    from trioserve.scheduler.plan import StepPlan


class ModelRunner:
    """The `Runner` of a real model.

    `stage` is called on the event loop and touches no model state; `launch` and `result` of its
    steps run on the device's thread, in order. Sampled tokens are handed from one step to the next
    inside, so a plan may carry a token that the host has not seen.
    """

    def __init__(
        self, decoder: "Decoder", *, max_tokens: int, max_sequences: int, max_len: int
    ) -> None:
        """Limits of any plan: tokens fed, rows, and tokens of one sequence."""
        self._decoder = decoder
        self._page_size = decoder.pages.page_size
        self._sizes = (max_tokens, max_sequences, -(-max_len // self._page_size))
        # Buffers return here when their step has been launched. Two are in use when a step is
        # staged while another runs; a step that is never launched costs one new buffer later.
        self._free = [Staging(*self._sizes), Staging(*self._sizes)]
        # Tokens sampled by the last launched step, by the identity of the sequence. Only the plan
        # of the next step asks, and its rows keep those sequences alive, so no id is reused.
        self._last_tokens: dict[int, int] = {}

    def stage(self, plan: "StepPlan") -> "ModelStep":
        """Write the plan into buffers. Cheap, no checkpoint, no tensor work."""
        staging = self._free.pop() if self._free else Staging(*self._sizes)
        staging.fill(plan, self._page_size)
        return ModelStep(self, plan, staging)

    def compute(self, plan: "StepPlan", staging: Staging) -> StepResult:
        """Run one staged plan; for `ModelStep.launch` alone."""
        try:
            failures = self._carry(plan, staging)
            with torch.inference_mode():
                logits = self._decoder.forward(staging.decoder_input())
        finally:
            self._free.append(staging)
        rows = [index for index, row in enumerate(plan.rows) if row.is_sampled]
        draws = [
            Draw(plan.rows[i].sampling, plan.rows[i].sample_index, plan.rows[i].end) for i in rows
        ]
        sampled = sample(logits.numpy(), draws)
        token_ids: list[int | None] = [None] * len(plan.rows)
        for index, token_id in zip(rows, sampled.token_ids, strict=True):
            token_ids[index] = token_id
        for failure in sampled.failures:
            failures.setdefault(rows[failure.row], failure.message)
        for index in failures:
            token_ids[index] = None
        self._last_tokens = {
            id(row.sequence): token_id
            for row, token_id in zip(plan.rows, token_ids, strict=True)
            if token_id is not None
        }
        reported = tuple(RowFailure(index, message) for index, message in failures.items())
        return StepResult(tuple(token_ids), reported)

    def _carry(self, plan: "StepPlan", staging: Staging) -> dict[int, str]:
        """Fill in the carried tokens; messages by row for those that there is no token for."""
        failures = {}
        for place, index in staging.carried:
            token_id = self._last_tokens.get(id(plan.rows[index].sequence))
            if token_id is None:
                # The step before failed for this sequence; compute something harmless.
                failures[index] = "the token before this one could not be drawn"
                token_id = 0
            staging.carry(place, token_id)
        return failures


class ModelStep:
    """One plan, staged. `launch` once, then `result` once."""

    def __init__(self, runner: ModelRunner, plan: "StepPlan", staging: Staging) -> None:
        self._runner = runner
        self._plan = plan
        self._staging: Staging | None = staging
        self._result: StepResult | None = None

    def launch(self) -> None:
        """Compute the step; on the CPU the work is done when this returns."""
        staging, self._staging = self._staging, None
        assert staging is not None, f"step {self._plan.number} was launched twice"
        self._result = self._runner.compute(self._plan, staging)

    def result(self) -> StepResult:
        """What `launch` computed."""
        assert self._result is not None, f"step {self._plan.number} was not launched"
        return self._result
