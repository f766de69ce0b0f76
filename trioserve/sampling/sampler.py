"""Drawing tokens: one row of logits and the request's parameters in, one token id out.

The order is that of the API: temperature → top_k → top_p → min_p → draw. The noise of a draw is a
function of (seed, sample index, position of the new token), so a row gives the same token whatever
else is in the batch and however often the request is repeated.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import frozen

from trioserve.core import SamplingParams
from trioserve.device.base import RowFailure

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

GREEDY_TEMPERATURE = 1e-6
# A sum this close to top_p counts as having reached it: float32 logits are not known better.
_TOP_P_SLACK = 1e-6
_BLOCK = 256
_MASK_64 = (1 << 64) - 1


@frozen
class Draw:
    """What is asked of one row: the parameters, and what its noise depends on."""

    sampling: SamplingParams
    sample_index: int
    position: int

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken (the lowest id where several are)."""
        return self.sampling.temperature < GREEDY_TEMPERATURE or self.sampling.top_k == 1


@frozen
class Sampled:
    """One entry a row: the token drawn, or None where the row failed."""

    token_ids: tuple[int | None, ...]
    failures: tuple[RowFailure, ...] = ()


def sample(logits: Floats, draws: Sequence[Draw]) -> Sampled:
    """Draw one token a row of `logits` [rows, vocab], which is only read.

    A row with a non-finite logit is reported as failed; the other rows are not affected.
    """
    assert logits.shape[0] == len(draws), (logits.shape, len(draws))
    if not draws:
        return Sampled(())
    # A sum is finite only if every term is, and costs one pass without a temporary.
    with np.errstate(invalid="ignore", over="ignore"):
        is_finite = np.isfinite(logits.sum(axis=1))
    best = logits.argmax(axis=1)
    token_ids: list[int | None] = []
    failures: list[RowFailure] = []
    for row, draw in enumerate(draws):
        if not is_finite[row]:
            failures.append(RowFailure(row, "the model produced non-finite logits"))
            token_ids.append(None)
        elif draw.is_greedy:
            token_ids.append(int(best[row]))
        else:
            token_ids.append(_draw(logits[row], logits[row, best[row]], draw))
    return Sampled(tuple(token_ids), tuple(failures))


def uniform(seed: int, sample_index: int, position: int) -> float:
    """The noise of one draw, in [0, 1).

    Philox is a keyed hash of a counter. Rejected: a generator a request, whose state would depend
    on how often a preempted sequence was computed.
    """
    key = np.array([seed & _MASK_64, sample_index & _MASK_64], dtype=np.uint64)
    raw = np.random.Philox(key=key, counter=position).random_raw()
    return float(int(raw) >> 11) * 2.0**-53


def _draw(row: Floats, largest: np.float32, draw: Draw) -> int:
    params = draw.sampling
    noise = uniform(params.seed, draw.sample_index, draw.position)
    # Weights are probabilities up to a factor: the most likely token has weight 1. Dividing after
    # the subtraction keeps tiny temperatures finite; what overflows is -inf, whose weight is 0.
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((row - largest) / np.float32(params.temperature))
    if 1 < params.top_k < row.size:
        ids = _most_likely(row, params.top_k)
        chosen = weights[ids].astype(np.float64)
        if params.top_p < 1.0:
            chosen = chosen[: _nucleus_size(chosen, params.top_p * float(chosen.sum()))]
        return int(ids[_draw_from_sorted(chosen, params.min_p, noise)])
    if params.top_p < 1.0:
        total = float(weights.sum(dtype=np.float64))
        ids = _nucleus_candidates(weights, total, params.top_p)
        chosen = weights[ids].astype(np.float64)
        chosen = chosen[: _nucleus_size(chosen, params.top_p * total)]
        return int(ids[_draw_from_sorted(chosen, params.min_p, noise)])
    if params.min_p > 0.0:
        weights[weights < np.float32(params.min_p)] = 0.0
    return _draw_from_all(weights, noise)


def _most_likely(row: Floats, k: int) -> Ids:
    """Ids of the k largest logits, best first; of equal ones the lowest ids."""
    boundary = np.partition(row, row.size - k)[row.size - k]
    above = np.flatnonzero(row > boundary)
    ties = np.flatnonzero(row == boundary)[: k - above.size]
    above = above[np.argsort(-row[above], kind="stable")]
    return np.concatenate((above, ties))


def _nucleus_candidates(weights: Floats, total: float, top_p: float) -> Ids:
    """Ids, best first, of tokens among which the nucleus lies, without sorting the vocabulary.

    All tokens below (1 - top_p) · total / vocab together weigh less than (1 - top_p) · total, so
    the ones at or above it reach top_p, and they are the most likely ones.
    """
    ids = np.flatnonzero(weights >= (1.0 - top_p) * total / weights.size)
    return ids[np.argsort(-weights[ids], kind="stable")]


def _nucleus_size(chosen: Doubles, target: float) -> int:
    """How many of the weights, best first, it takes for their sum to reach the target."""
    sums = chosen.cumsum()
    last = int(np.searchsorted(sums, target * (1.0 - _TOP_P_SLACK)))
    return min(last, chosen.size - 1) + 1


def _draw_from_sorted(chosen: Doubles, min_p: float, noise: float) -> int:
    """Index drawn in proportion to the weights, best first, of which the largest is 1."""
    # The best token stays even where rounding has put it below min_p = 1.
    kept = chosen[: max(1, int(np.count_nonzero(chosen >= min_p)))] if min_p > 0.0 else chosen
    return _inverse(kept.cumsum(), noise)


def _draw_from_all(weights: Floats, noise: float) -> int:
    """Id drawn in proportion to the weights, found by block and then within the block.

    The cumulative sum over a whole vocabulary would cost several times as much.
    """
    num_whole = weights.size - weights.size % _BLOCK
    block_sums = weights[:num_whole].reshape(-1, _BLOCK).sum(axis=1).astype(np.float64)
    rest = weights[num_whole:].astype(np.float64)
    sums = np.concatenate((block_sums, [rest.sum()])).cumsum()
    target = noise * sums[-1]
    block = min(int(np.searchsorted(sums, target, side="right")), _last_rise(sums))
    inner = weights[block * _BLOCK : (block + 1) * _BLOCK].astype(np.float64).cumsum()
    before = float(sums[block - 1]) if block else 0.0
    # The block's sum was rounded in another order: scale, so that the last entry is reached.
    share = (target - before) / (float(sums[block]) - before)
    return block * _BLOCK + _inverse(inner, min(max(share, 0.0), 1.0))


def _inverse(sums: Doubles, noise: float) -> int:
    """First index whose cumulative sum exceeds noise · total; never one of weight 0."""
    return min(int(np.searchsorted(sums, noise * sums[-1], side="right")), _last_rise(sums))


def _last_rise(sums: Doubles) -> int:
    """The last index of positive weight: where the cumulative sum first has its final value."""
    return int(np.searchsorted(sums, sums[-1], side="left"))
