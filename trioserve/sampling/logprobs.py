"""Reading logprobs: natural logarithms of the model's own probabilities, from one row of logits.

A token's logprob is its logit less one number, the row's log-sum-exp. Both are functions of the
row alone, so a token shows the same bits wherever its logprob appears: as the one drawn, among the
most likely, among those asked for, in whatever batch or chunk it was computed.
"""

import math

import numpy as np

from trioserve.core import ReadoutParams, TokenLogprobs
from trioserve.sampling.row import Floats, most_likely


def read_logprobs(row: Floats, token_id: int, readout: ReadoutParams) -> TokenLogprobs:
    """Of `token_id`, of the most likely tokens and of those named; `row` is finite, only read."""
    log_total = _log_sum_exp(row)
    top: tuple[tuple[int, float], ...] = ()
    if readout.num_top:
        ids = most_likely(row, readout.num_top)
        # Doubles throughout: a single's subtraction would round another time.
        values = row[ids].astype(np.float64) - log_total
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(
        logprob=float(row[token_id]) - log_total,
        top=top,
        chosen=tuple(float(row[i]) - log_total for i in readout.token_ids),
    )


def _log_sum_exp(row: Floats) -> float:
    """log(sum(exp(row))), within about 1e-7.

    The powers are single, which numpy computes several times as fast, as their errors are those
    that the logits have anyway; their sum is double, because it has a whole vocabulary of terms.
    """
    largest = row.max()
    with np.errstate(over="ignore", under="ignore"):
        total = np.exp(row - largest).sum(dtype=np.float64)
    return float(largest) + math.log(total)
