"""Token counts as the API reports them."""

from typing import Any

from trioserve.engine.stream import RequestStream


def _usage(num_prompt_tokens: int, num_completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_completion_tokens,
        "total_tokens": num_prompt_tokens + num_completion_tokens,
        "prompt_tokens_details": None,
    }


def total_usage(stream: RequestStream) -> dict[str, Any]:
    """Of the whole request: every prompt once, every sample's tokens."""
    return _usage(stream.num_prompt_tokens, stream.num_output_tokens)


def choice_usage(stream: RequestStream, index: int) -> dict[str, Any]:
    """Running counts of one choice, for `continuous_usage_stats`."""
    choice = stream.choices[index]
    return _usage(len(choice.sequence.prompt_ids), choice.num_tokens)
