"""The first steps of an embedding model: they warm it up and tell how much a step can take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trioserve.model.warm_up import TARGET_STEP_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from trioserve.model.embedder import Embedder

_CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
# Below this a step holds a sentence or two, and what each step costs beside them begins to count.
_SMALLEST = 64
# The longer a text, the more a token of it costs; this is longer than most.
_USUAL_LEN = 128


def choose_step_tokens(embedder: Embedder, clock: Callable[[], float] = time.perf_counter) -> int:
    """Tokens of one step, padding included, from 64 to 8192, so that it keeps the target.

    Runs steps of growing size and stops at the first that takes too long: between it and the one
    before, the time is about linear. The best of three runs counts, as a busy neighbour at
    start-up must not slow all that follows. One text that is longer than a step takes is a step of
    its own.
    """
    row_len = min(_USUAL_LEN, embedder.max_len)
    before = (0, 0.0)
    _time_step(embedder, _SMALLEST, row_len, clock)  # first touches of memory are not typical
    for num_tokens in _CANDIDATES:
        elapsed = min(_time_step(embedder, num_tokens, row_len, clock) for _ in range(3))
        if elapsed > TARGET_STEP_S:
            share = (TARGET_STEP_S - before[1]) / (elapsed - before[1])
            return max(_SMALLEST, before[0] + int(share * (num_tokens - before[0])))
        before = (num_tokens, elapsed)
    return before[0]


def _time_step(
    embedder: Embedder, num_tokens: int, row_len: int, clock: Callable[[], float]
) -> float:
    rows = [(embedder.pad_id,) * row_len] * (num_tokens // row_len)
    rest = num_tokens - row_len * len(rows)
    inputs = rows or [(embedder.pad_id,) * rest]
    started = clock()
    embedder.embed(inputs)
    return clock() - started
