"""What a client asks of the engine, and what it gets back piece by piece."""

from attrs import frozen

from trioserve.core import Finish, SamplingParams, StopParams


@frozen
class GenerateRequest:
    """One validated request: every prompt is sampled `num_samples` times.

    Choice i of the request is sample i % num_samples of prompt i // num_samples.
    """

    request_id: str
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: tuple[int, ...]
    """For each prompt, the most tokens that each of its choices may have."""
    num_samples: int
    sampling: SamplingParams
    stop: StopParams
    timeout_s: float | None = None
    limit_param: str = "max_tokens"
    """The field to name when the tokens asked for can never fit."""

    @property
    def num_sequences(self) -> int:
        """Sequences that the request brings into the queue."""
        return len(self.prompts) * self.num_samples


@frozen
class Delta:
    """What one choice produced since its reader last took something.

    `text` may be empty: tokens whose text is held back, or a finish that adds none.
    """

    index: int
    text: str
    num_tokens: int
    finish: Finish | None
