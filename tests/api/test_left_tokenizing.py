"""Texts of a client that has left are not tokenized to their end."""

import threading

import pytest
import trio

from trioserve.api.prompts import Check, checked, run_long

LONG = 1_000_000


@pytest.mark.slow
async def test_long_work_ends_at_its_next_check_once_its_request_is_cancelled() -> None:
    begun, left = threading.Event(), threading.Event()
    limiter = trio.CapacityLimiter(1)
    done: list[int] = []

    def work(check: Check) -> None:
        for number in checked(range(3), check):
            done.append(number)
            begun.set()
            left.wait(10)

    with trio.CancelScope() as request:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_long, work, LONG, limiter)
            await trio.to_thread.run_sync(begun.wait, 10)
            request.cancel()
    assert limiter.borrowed_tokens == 1, "the thread is between two texts, and still has its place"
    left.set()
    async with limiter:  # free again when the thread has ended
        assert done == [0]


async def test_short_work_runs_where_it_is_called() -> None:
    here = threading.get_ident()

    def work(check: Check) -> int:
        return [threading.get_ident() for _ in checked(range(2), check)][1]

    assert await run_long(work, 10) == here
