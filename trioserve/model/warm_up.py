"""The first steps of a model: they warm it up and tell how many tokens a step can take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from trioserve.model.decoder import DecoderInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from trioserve.model.decoder import Decoder

# Others' tokens wait for a whole step, so its length is everybody's smoothness. The target is
# below the promise of 100 ms, because attention to a long context comes on top.
TARGET_STEP_S = 0.085
_CANDIDATES = (32, 64, 128, 256, 512)
_ROUNDING = 16
# Below this a full batch of decoding sequences leaves a prompt next to nothing of a step.
_SMALLEST = 32


def choose_step_tokens(
    decoder: Decoder, max_len: int, clock: Callable[[], float] = time.perf_counter
) -> int:
    """Prompt tokens of one step, a multiple of 16 from 32 to 512, so that it keeps the target.

    Runs prefill steps of growing size on the pages from 0 on, whose content nobody needs yet, and
    stops at the first that takes too long: between it and the one before, the time is about linear.
    The best of three runs counts, as a busy neighbour at start-up must not slow all that follows.
    """
    room = min(max_len, decoder.pages.num_pages * decoder.pages.page_size)
    before = (0, 0.0)
    _time_step(decoder, min(_SMALLEST, room), clock)  # first touches of memory are not typical
    for num_tokens in _CANDIDATES:
        if num_tokens > room:
            break
        elapsed = min(_time_step(decoder, num_tokens, clock) for _ in range(3))
        if elapsed > TARGET_STEP_S:
            share = (TARGET_STEP_S - before[1]) / (elapsed - before[1])
            num_fitting = before[0] + int(share * (num_tokens - before[0]))
            return max(_SMALLEST, num_fitting // _ROUNDING * _ROUNDING)
        before = (num_tokens, elapsed)
    return max(_SMALLEST, before[0])


def _time_step(decoder: Decoder, num_tokens: int, clock: Callable[[], float]) -> float:
    page_size = decoder.pages.page_size
    positions = torch.arange(num_tokens, dtype=torch.int32)
    num_pages = -(-num_tokens // page_size)
    batch = DecoderInput(
        token_ids=torch.zeros(num_tokens, dtype=torch.int64),
        positions=positions,
        slots=positions.long(),
        row_sequence=torch.zeros(num_tokens, dtype=torch.int32),
        page_table=torch.arange(num_pages, dtype=torch.int32)[None],
        output_rows=torch.tensor([num_tokens - 1]),
    )
    started = clock()
    decoder.head(decoder.forward(batch))
    return clock() - started
