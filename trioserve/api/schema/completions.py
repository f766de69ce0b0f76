"""The body of `POST /v1/completions`."""

from typing import Any

from attrs import frozen

from trioserve.api.schema.declare import param, read_object, required
from trioserve.api.schema.generation import MAX_SAMPLES, GenerationBody
from trioserve.api.schema.ignored import note_unknown
from trioserve.api.schema.kinds import Boolean, Integer, NumLogprobs, Text
from trioserve.api.schema.structured import FORMAT_DOC, ResponseFormat
from trioserve.api.schema.tokens import Prompt, Prompts
from trioserve.grammar.constraint import Constraint

DEFAULT_MAX_TOKENS = 16


@frozen(kw_only=True)
class CompletionBody(GenerationBody):
    """See GenerationBody."""

    prompt: tuple[Prompt, ...] = required(
        Prompts(), "Text or token ids, one prompt or many.", "prompt is required"
    )
    max_tokens: int | None = param(
        Integer(0, None, "max_tokens must be at least 0"),
        None,
        f"Most tokens generated for each choice; {DEFAULT_MAX_TOKENS} if left out, 0 only with "
        "echo.",
    )
    echo: bool = param(Boolean(), False, "Begin each choice's text with its prompt.")
    logprobs: int | None = param(
        NumLogprobs("logprobs must be an integer"),
        None,
        "Report each token's logprob, and those of so many most likely ones.",
    )
    best_of: int | None = param(
        Integer(
            1,
            MAX_SAMPLES,
            f"best_of must be between n and {MAX_SAMPLES}",
            below="best_of must be greater than or equal to n",
        ),
        None,
        "Candidates a prompt, of which the n most likely are returned; n if left out.",
    )
    suffix: str | None = param(Text(), None, "Text that comes after the completion.")
    response_format: Constraint | None = param(ResponseFormat(is_flat_read=False), None, FORMAT_DOC)

    @property
    def num_samples(self) -> int:
        """Sequences a prompt."""
        return self.n if self.best_of is None else self.best_of


def parse_completion(body: dict[str, Any]) -> CompletionBody:
    """Raises RequestError for the first thing that is wrong."""
    request = read_object(CompletionBody, body)
    note_unknown(CompletionBody, body)
    return request
