"""Prefill and decode share every step, so that neither waits; and first come, first served.

A step is the measure of time here: `runner.plans` is what the device was given, in order.
"""

import pytest
import trio
import trio.testing

from tests.engine.kit import Bench, StartBench, expected, read_all, request
from trioserve.engine.abort_reason import AbortReason

LONG_PROMPT = bytes(range(32, 122)) * 2


@pytest.mark.case(103)
async def test_a_stream_gets_a_token_in_every_step_while_long_prompts_keep_coming(
    start: StartBench,
) -> None:
    bench = await start(num_pages=400, max_step_tokens=16, is_automatic=False)
    chatting = []

    async def chat() -> None:
        with bench.engine.open_stream(request(b"chat", 60)) as stream:
            chatting.append(stream.choices[0].sequence)
            assert await read_all(stream) == [expected(b"chat", 60)]

    async def ask(prompt: bytes) -> None:
        with bench.engine.open_stream(request(prompt, 2)) as stream:
            assert await read_all(stream) == [expected(prompt, 2)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(chat)
        await trio.testing.wait_all_tasks_blocked()
        for index in range(6):
            nursery.start_soon(ask, bytes([65 + index]) + LONG_PROMPT)
        await trio.testing.wait_all_tasks_blocked()
        bench.finish_all()
    (sequence,) = chatting
    rows = [[row for row in plan.rows if row.sequence is sequence] for plan in bench.runner.plans]
    steps_with_a_row = [number for number, found in enumerate(rows) if found]
    num_prefilling = sum(plan.num_tokens > 8 for plan in bench.runner.plans)
    assert num_prefilling > 40, "the long prompts did not overlap the stream"
    # From its first step to its last there is no gap, and no step is larger for the long prompts.
    assert steps_with_a_row == list(range(steps_with_a_row[0], steps_with_a_row[0] + 60))
    assert max(plan.num_tokens for plan in bench.runner.plans) <= 16


@pytest.mark.case(104)
async def test_a_new_request_gets_its_first_token_in_a_few_steps_beside_endless_streams(
    start: StartBench, depth: int
) -> None:
    bench = await start(num_pages=400, max_step_tokens=8, max_running_requests=13)
    async with trio.open_nursery() as nursery:
        for index in range(12):
            nursery.start_soon(chat_for_ever, bench, bytes([65 + index]))
        while len(bench.runner.plans) < 20:
            await trio.lowlevel.checkpoint()
        assert len(bench.runner.plans[-1].rows) == 12
        with bench.engine.open_stream(request(b"newcomer", 1)) as stream:
            num_before = len(bench.runner.plans)
            assert await read_all(stream) == [expected(b"newcomer", 1)]
            num_steps = len(bench.runner.plans) - num_before
        # A quarter of the step, two tokens, is prefill's: four steps for eight tokens.
        assert num_steps <= 4 + depth
        nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_requests_start_in_the_order_in_which_they_came(start: StartBench) -> None:
    bench = await start(max_running_requests=2)
    streams = []

    async def run(index: int) -> None:
        with bench.engine.open_stream(request(bytes([65 + index]), 3 + index % 4)) as stream:
            streams.append(stream)
            await read_all(stream)

    async with trio.open_nursery() as nursery:
        for index in range(10):
            nursery.start_soon(run, index)
    arrived = [choice.sequence for stream in streams for choice in stream.choices]
    arrived.sort(key=lambda sequence: sequence.id)
    in_step_order = [row.sequence for plan in bench.runner.plans for row in plan.rows]
    assert list(dict.fromkeys(in_step_order)) == arrived


async def test_the_samples_of_one_request_advance_together(start: StartBench) -> None:
    bench = await start(num_pages=100)
    with bench.engine.open_stream(request(b"abc", 10, num_samples=4)) as stream:
        assert await read_all(stream) == [expected(b"abc", 10, index) for index in range(4)]
    assert all(len(plan.rows) == 4 for plan in bench.runner.plans)


async def test_a_freed_slot_is_taken_by_the_next_plan(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_running_requests=1)
    with bench.engine.open_stream(request(b"first", 50)) as first:
        await bench.finish_step()
        with bench.engine.open_stream(request(b"second", 1)) as second:
            await bench.finish_step()
            num_before = len(bench.runner.plans)
            assert not second.is_started
            bench.engine.abort(first, AbortReason.CANCELLED)
            await bench.finish_step()
            # The steps that were in flight when the slot came free, and then its own.
            assert len(bench.runner.plans) == num_before + 1
            assert second.is_started
            while bench.device.unfinished:
                await bench.finish_step()
            assert second.is_finished
    bench.check_idle()


async def chat_for_ever(bench: Bench, prompt: bytes) -> None:
    with bench.engine.open_stream(request(prompt, 120)) as stream:
        await read_all(stream)
