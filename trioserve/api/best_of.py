"""Which candidates of a prompt are returned."""

from collections.abc import Sequence
from math import fsum, inf

from trioserve.api.reply_shape import Outcome


def best_outcomes(outcomes: Sequence[Outcome], num_samples: int, n: int) -> list[Outcome]:
    """Of each prompt's `num_samples` candidates the `n` most likely ones, the best first.

    With as many candidates as choices nothing is ranked: they stay in the order of sampling, as a
    stream sends them.
    """
    if num_samples == n:
        return list(outcomes)
    best: list[Outcome] = []
    for start in range(0, len(outcomes), num_samples):
        # Sorting is stable, so that of equals the lower candidate comes first.
        ranked = sorted(outcomes[start : start + num_samples], key=_likelihood, reverse=True)
        best += ranked[:n]
    return best


def _likelihood(outcome: Outcome) -> float:
    """Mean logprob of the generated tokens; one without any comes last."""
    logprobs = [token.logprobs.logprob for token in outcome.tokens if token.logprobs is not None]
    assert len(logprobs) == len(outcome.tokens), "candidates are ranked by logprobs not read"
    return fsum(logprobs) / len(logprobs) if logprobs else -inf
