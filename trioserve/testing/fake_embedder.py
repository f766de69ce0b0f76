"""`FakeEmbeddingRunner`: an embedding model without weights."""

from hashlib import blake2b

import numpy as np
from attrs import define, field

from trioserve.core import ModelInfo
from trioserve.device.base import RowFailure, RowReadout, StepResult
from trioserve.engine.embedding import Vector
from trioserve.engine.served import ServedEmbedder
from trioserve.model.embedder_spec import Matryoshka
from trioserve.runner.embedding_plan import EmbeddingPlan
from trioserve.testing.fake_text import shared_byte_tokenizer

SIZE = 8


def fake_vector(token_ids: tuple[int, ...]) -> Vector:
    """The vector of a text, of length 1: a hash of all of it, so that one wrong token shows."""
    digest = blake2b(repr(token_ids).encode(), digest_size=SIZE).digest()
    vector = np.frombuffer(digest, dtype=np.uint8).astype(np.float32) - 127.5
    return vector / np.linalg.norm(vector)


@define(eq=False)
class FakeEmbeddingRunner:
    """Remembers what was planned."""

    poison: int | None = None
    """A text that holds this token makes its own row fail."""
    plans: list[EmbeddingPlan] = field(factory=list)

    def stage(self, plan: EmbeddingPlan) -> "FakeEmbeddingStep":
        """See EmbeddingRunner.stage."""
        self.plans.append(plan)
        return FakeEmbeddingStep(plan, self.poison)


@define(eq=False)
class FakeEmbeddingStep:
    """See Step."""

    plan: EmbeddingPlan
    poison: int | None
    _result: StepResult | None = None

    def launch(self) -> None:
        """See Step.launch."""
        poisoned = [row for row, ids in enumerate(self.plan.inputs) if self.poison in ids]
        self._result = StepResult(
            token_ids=(None,) * len(self.plan.inputs),
            failures=tuple(RowFailure(row, "the embedding is not finite") for row in poisoned),
            readouts={
                row: RowReadout(vector=fake_vector(token_ids))
                for row, token_ids in enumerate(self.plan.inputs)
                if row not in poisoned
            },
        )

    def result(self) -> StepResult:
        """See Step.result."""
        assert self._result is not None, "result before launch"
        return self._result


def fake_embedder(
    runner: FakeEmbeddingRunner,
    *,
    path: str = "fake-embedder",
    max_step_tokens: int = 64,
    max_model_len: int = 32,
    prompt: str = "",
    matryoshka: Matryoshka | None = None,
) -> ServedEmbedder:
    """`runner` as an engine serves it, with a tokenizer whose ids are bytes."""
    return ServedEmbedder(
        info=ModelInfo(
            path=path,
            model_type="fake",
            architectures=("FakeModel",),
            dtype="float32",
            vocab_size=257,
            max_model_len=max_model_len,
            is_generation=False,
        ),
        runner=runner,
        tokenizer=shared_byte_tokenizer(),
        prompt=prompt,
        size=SIZE,
        matryoshka=matryoshka,
        max_step_tokens=max_step_tokens,
    )
