"""What a request changes about its logits before a token is drawn: bias, penalties, mask.

In the order of the API: logit_bias → repetition, frequency, presence penalties → mask. Each change
but a grammar's touches few tokens, so a row costs one copy and not a pass over the vocabulary for
each.
"""

import numpy as np

from trioserve.errors import RequestFailed
from trioserve.sampling.row import Draw, Floats


def adjusted_logits(row: Floats, draw: Draw) -> Floats:
    """The logits that `draw` draws from; masked tokens have -inf. `row` is only read.

    `row` must be finite. Raises RequestFailed where a bias or a penalty leaves the range of
    float32 (an infinity would win every draw), and where the mask leaves nothing to draw.
    """
    adjusted = row
    if draw.sampling.logit_bias or draw.sampling.has_penalties:
        adjusted = _changed(row, draw)
    if draw.allowed is not None:
        adjusted = _kept(adjusted, draw.allowed)
    if draw.masked_ids:
        adjusted = row.copy() if adjusted is row else adjusted
        # An end token of the tokenizer may lie beyond the model's vocabulary.
        adjusted[[i for i in draw.masked_ids if 0 <= i < adjusted.size]] = -np.inf
    if (draw.masked_ids or draw.allowed is not None) and adjusted.max() == -np.inf:
        raise RequestFailed("every token is masked: there is none to draw")
    return adjusted


def _changed(row: Floats, draw: Draw) -> Floats:
    """With bias and penalties, a new array."""
    adjusted = row.copy()
    # What overflows is looked for once, at the end.
    with np.errstate(over="ignore", divide="ignore"):
        if draw.sampling.logit_bias:
            ids, biases = zip(*draw.sampling.logit_bias, strict=True)
            adjusted[list(ids)] += np.array(biases, np.float32)
        if draw.sampling.has_penalties:
            _penalize(adjusted, draw)
    if not np.isfinite(adjusted).all():
        raise RequestFailed("logit_bias or a penalty makes the logits non-finite")
    return adjusted


def _penalize(adjusted: Floats, draw: Draw) -> None:
    """Apply the three penalties in place, in double precision where they touch."""
    params = draw.sampling
    history = np.array(draw.history, np.int64)
    if params.repetition_penalty != 1.0:
        seen = np.unique(history)
        before = adjusted[seen].astype(np.float64)
        adjusted[seen] = np.where(
            before > 0.0, before / params.repetition_penalty, before * params.repetition_penalty
        )
    if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
        generated, counts = np.unique(history[draw.num_prompt :], return_counts=True)
        taken = params.frequency_penalty * counts + params.presence_penalty
        adjusted[generated] = adjusted[generated] - taken


def _kept(row: Floats, allowed: memoryview) -> Floats:
    """With all tokens masked but those whose bits are set, a new array.

    By index, of whichever kind there are fewer: twice as fast as numpy's own ways to mask, and ten
    times where a grammar leaves a few tokens, or all but a few.
    """
    bits = np.unpackbits(np.frombuffer(allowed, np.uint8), bitorder="little")[: row.size]
    # numpy looks for what is true several times as fast as for what is not 0.
    is_allowed = bits.view(np.bool_)
    if 2 * np.count_nonzero(is_allowed) < row.size:
        ids = np.flatnonzero(is_allowed)
        kept = np.full(row.size, -np.inf, np.float32)
        kept[ids] = row[ids]
    else:
        kept = row.copy()
        kept[: bits.size][np.flatnonzero(~is_allowed)] = -np.inf
        kept[bits.size :] = -np.inf
    return kept
