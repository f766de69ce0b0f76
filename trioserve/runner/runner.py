"""`ModelRunner`: turns each step plan into a step that computes and draws tokens."""

from typing import TYPE_CHECKING

from trioserve.device.base import StepResult
from trioserve.model.decoder import HEAD_ROWS
from trioserve.runner.masks import MaskFiller
from trioserve.runner.reading import StepReading
from trioserve.runner.staging import Output, Staging

if TYPE_CHECKING:
    from torch import Tensor

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
        self._filler = MaskFiller()

    def stage(self, plan: "StepPlan") -> "ModelStep":
        """Write the plan into buffers. Cheap, no checkpoint, no tensor work."""
        staging = self._free.pop() if self._free else Staging(*self._sizes)
        staging.fill(plan, self._page_size)
        return ModelStep(self, plan, staging)

    def compute(self, plan: "StepPlan", staging: Staging) -> StepResult:
        """Run one staged plan; for `ModelStep.launch` alone."""
        masks = self._filler.start(plan.rows)
        try:
            reading = self._carry(plan, staging)
            hidden = self._decoder.forward(staging.decoder_input())
            outputs = staging.outputs
        finally:
            self._free.append(staging)
            # Also when the step failed: nobody may change what is being read.
            filled = masks.join()
        reading.allowed = filled.allowed
        reading.failures |= filled.failures
        for begin in range(0, len(outputs), HEAD_ROWS):
            block = slice(begin, begin + HEAD_ROWS)
            self._read(reading, outputs[block], hidden[block])
        self._last_tokens = {
            id(plan.rows[index].sequence): token_id for index, token_id in reading.token_ids.items()
        }
        return reading.result()

    def _read(self, reading: StepReading, outputs: list[Output], hidden: "Tensor") -> None:
        """Give one block of outputs to `reading`. The block's logits end with the call."""
        logits = self._decoder.head(hidden).numpy()
        for output, row_logits, row_hidden in zip(outputs, logits, hidden.numpy(), strict=True):
            reading.read(output, row_logits, row_hidden)

    def _carry(self, plan: "StepPlan", staging: Staging) -> StepReading:
        """Fill in the carried tokens, and begin the reading with them.

        A row fails for which there is no token.
        """
        carried_ids, failures = {}, {}
        for place, index in staging.carried:
            token_id = self._last_tokens.get(id(plan.rows[index].sequence))
            if token_id is None:
                # The step before failed for this sequence; compute something harmless.
                failures[index] = "the token before this one could not be drawn"
                token_id = 0
            staging.carry(place, token_id)
            carried_ids[index] = token_id
        return StepReading(plan, carried_ids, failures)


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
