"""`EmbeddingRunner`: turns each plan of texts into a step that computes their vectors."""

from typing import TYPE_CHECKING

import numpy as np

from trioserve.device.base import RowFailure, RowReadout, StepResult

if TYPE_CHECKING:
    from trioserve.model.embedder import Embedder
    from trioserve.runner.embedding_plan import EmbeddingPlan


class EmbeddingRunner:
    """The runner of a real embedding model. `launch` of its steps runs on the device's thread."""

    def __init__(self, embedder: "Embedder") -> None:
        self._embedder = embedder

    def stage(self, plan: "EmbeddingPlan") -> "EmbeddingStep":
        """Cheap, no checkpoint: the plan does not change, so its arrays can be made at launch."""
        return EmbeddingStep(self._embedder, plan)


class EmbeddingStep:
    """One plan, staged. `launch` once, then `result` once."""

    def __init__(self, embedder: "Embedder", plan: "EmbeddingPlan") -> None:
        self._embedder = embedder
        self._plan = plan
        self._result: StepResult | None = None

    def launch(self) -> None:
        """Compute the step; on the CPU the work is done when this returns."""
        vectors = self._embedder.embed(self._plan.inputs)
        finite_rows = set(np.flatnonzero(np.isfinite(vectors).all(axis=1)).tolist())
        self._result = StepResult(
            token_ids=(None,) * len(vectors),
            failures=tuple(
                RowFailure(row, "the embedding is not finite")
                for row in range(len(vectors))
                if row not in finite_rows
            ),
            readouts={row: RowReadout(vector=vectors[row]) for row in finite_rows},
        )

    def result(self) -> StepResult:
        """What `launch` computed."""
        assert self._result is not None, f"step {self._plan.number} was not launched"
        return self._result
