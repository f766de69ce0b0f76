"""Token counts as the API reports them."""

from typing import Any

from trioserve.api.cache_report import CacheReport
from trioserve.engine.stream import RequestStream


def _usage(
    num_prompt_tokens: int, num_completion_tokens: int, prompt_details: dict[str, int] | None
) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_completion_tokens,
        "total_tokens": num_prompt_tokens + num_completion_tokens,
        "prompt_tokens_details": prompt_details,
    }


def total_usage(
    stream: RequestStream, report: CacheReport, num_reasoning_tokens: int | None = None
) -> dict[str, Any]:
    """Of the whole request: every prompt once, every sample's tokens.

    With the tokens of reasoning blocks among them, where those are looked for.
    """
    details = report.usage_details(stream, *range(len(stream.request.generations)))
    usage = _usage(stream.num_prompt_tokens, stream.num_output_tokens, details)
    if num_reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": num_reasoning_tokens}
        usage["reasoning_tokens"] = num_reasoning_tokens
    return usage


def choice_usage(stream: RequestStream, report: CacheReport, index: int) -> dict[str, Any]:
    """Running counts of one choice, for `continuous_usage_stats`."""
    choice = stream.choices[index]
    details = report.usage_details(stream, index // stream.request.num_samples)
    return _usage(len(choice.sequence.prompt_ids), choice.num_tokens, details)
