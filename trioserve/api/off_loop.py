"""`off_loop`: what is large to write is written in a thread, where it holds up no stream."""

from collections.abc import Callable
from typing import TypeVar

import trio

LARGE_REPLY_ITEMS = 5000
"""Choices, tokens, their logprobs and numbers of an answer; larger ones are made in a thread."""

T = TypeVar("T")


async def off_loop(work: Callable[[], T], num_items: int) -> T:
    """What `work` makes of `num_items` items. A checkpoint if they are many.

    Abandoned when the client leaves, so `work` must touch nothing that anybody else changes.
    """
    if num_items <= LARGE_REPLY_ITEMS:
        return work()
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
