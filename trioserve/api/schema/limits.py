"""`Limits`: what bounds a request beside the contract."""

from attrs import frozen

from trioserve.config import ServerConfig


@frozen
class Limits:
    """Of one server: its settings, and its model's vocabulary."""

    max_logprobs: int
    max_prompts: int
    vocab_size: int


def limits_of(config: ServerConfig, vocab_size: int) -> Limits:
    """The limits of a server with these settings and a vocabulary of this size."""
    return Limits(config.max_logprobs, config.max_prompts_per_request, vocab_size)
