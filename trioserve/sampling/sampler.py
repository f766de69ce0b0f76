"""Drawing tokens: one row of logits and the request's parameters in, one token id out.

The order is that of the API: bias, penalties and mask (`penalties`) → temperature → top_k → top_p →
min_p → draw. The noise of a draw is a function of (seed, sample index, position of the new token),
so a row gives the same token whatever else is in the batch and however often the request is
repeated.
"""

import numpy as np

from trioserve.sampling.penalties import adjusted_logits
from trioserve.sampling.row import Doubles, Draw, Floats, Ids, most_likely

# A sum this close to top_p counts as having reached it: float32 logits are not known better.
_TOP_P_SLACK = 1e-6
_BLOCK = 256
_MASK_64 = (1 << 64) - 1


def draw_token(row: Floats, draw: Draw) -> int:
    """Draw one token from `row` [vocab], which is finite and only read.

    Raises RequestFailed where the request's own bias, penalties or mask leave nothing to draw from.
    """
    if draw.is_adjusted:
        row = adjusted_logits(row, draw)
    best = int(row.argmax())
    if draw.is_greedy:
        return best
    return _draw(row, row[best], draw)


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
        ids = most_likely(row, params.top_k)
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
