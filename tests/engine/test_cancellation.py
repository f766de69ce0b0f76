"""Promises 1 to 3: what happens to pages and tokens when a request's scope is left.

Two steps in flight is built once, by the `start` fixture at depth 2: the device finishes nothing
until the test says so, so the driver has launched as many steps as the depth allows.
"""

import pytest
import trio
import trio.testing

from tests.engine.kit import StartBench, expected, read_all, request
from trioserve.engine.abort_reason import AbortReason


async def test_abort_during_prefill_keeps_pages_until_the_steps_in_flight_retire(
    start: StartBench, depth: int
) -> None:
    bench = await start(is_automatic=False, max_step_tokens=8)
    pool = bench.engine.batch.pool
    with bench.engine.open_stream(request(bytes(range(40)))):
        await bench.device.wait_submitted()
        await trio.testing.wait_all_tasks_blocked()
        assert len(bench.device.unfinished) == depth
        assert pool.statistics().leased == 2 * depth  # a chunk of 8 tokens is two pages
    assert pool.statistics().leased == 0
    assert pool.statistics().quarantined == 2 * depth
    for left in reversed(range(depth)):
        await bench.finish_step()
        # The fence is the newest step that names the pages, whichever of them it touches.
        assert pool.statistics().quarantined == (2 * depth if left else 0)
    assert len(bench.runner.plans) == depth, "a step was launched for a request that had gone"
    bench.check_idle()


async def test_no_token_is_billed_after_the_cancellation(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"abc", 50)) as stream:
        await bench.finish_step()
        billed = stream.num_output_tokens
        assert billed == 1
    while bench.device.unfinished:
        await bench.finish_step()
    assert stream.num_output_tokens == billed
    statistics = bench.engine.statistics
    assert statistics.generation_tokens._value.get() == billed
    assert statistics.wasted_tokens._value.get() == bench.device.max_in_flight
    bench.check_idle()


async def test_a_queued_request_leaves_without_a_step(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_running_requests=1)
    with bench.engine.open_stream(request(b"first", 3)) as first:
        with bench.engine.open_stream(request(b"second")):
            await bench.finish_step()
            assert bench.engine.batch.scheduler.num_waiting == 1
        assert bench.engine.batch.scheduler.num_waiting == 0
        bench.finish_all()
        assert await read_all(first) == [expected(b"first", 3)]
    assert all(
        row.sequence.prompt_ids == tuple(b"first") for p in bench.runner.plans for row in p.rows
    )
    bench.check_idle()


async def test_all_children_of_a_request_end_with_its_scope(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_running_requests=2)
    prompts = [bytes([65 + index]) * 4 for index in range(16)]
    with bench.engine.open_stream(request(prompts, 10, num_samples=4)):
        await bench.finish_step()
        assert bench.engine.batch.scheduler.num_waiting == 62
    num_launched = len(bench.runner.plans)
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.runner.plans) == num_launched
    bench.check_idle()


async def test_leaving_the_scope_works_in_a_cancelled_task(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    with trio.CancelScope() as scope:
        with bench.engine.open_stream(request(b"abc")) as stream:
            scope.cancel()
            await stream.receive()
    assert scope.cancelled_caught
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_abort_is_idempotent_and_counted_once(start: StartBench) -> None:
    bench = await start()
    engine = bench.engine
    with engine.open_stream(request(b"abc", 200)) as stream:
        await stream.receive()
        engine.abort(stream, AbortReason.SHUTDOWN)
        engine.abort(stream, AbortReason.SHUTDOWN)
        texts = await read_all(stream)
        assert len(texts) == 1
    counted = {
        sample.labels["reason"]: sample.value
        for metric in engine.statistics.aborted.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
    assert counted == {"shutdown": 1.0}
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_stream_read_to_its_end_counts_no_abort(start: StartBench) -> None:
    bench = await start()
    for index in range(100):
        with bench.engine.open_stream(request(bytes([index]), 2)) as stream:
            await read_all(stream)
    assert not next(iter(bench.engine.statistics.aborted.collect())).samples
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_cancelling_one_request_changes_no_byte_of_another(start: StartBench) -> None:
    bench = await start(num_pages=40, max_running_requests=6)
    survivor = b"survivor"
    texts: list[str] = []

    async def survive() -> None:
        with bench.engine.open_stream(request(survivor, 60)) as stream:
            texts.extend(await read_all(stream))

    async def leave_early(index: int) -> None:
        with trio.CancelScope() as scope:
            with bench.engine.open_stream(request(bytes([index]) * (index % 9 + 1), 40)) as stream:
                for _ in range(index % 7):
                    await stream.receive()
                scope.cancel()
                await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(survive)
        for index in range(40):
            nursery.start_soon(leave_early, index)
    assert texts == [expected(survivor, 60)]
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_steps_to_free_are_at_most_the_depth(start: StartBench, depth: int) -> None:
    bench = await start(is_automatic=False)
    for num_steps in range(4):
        with bench.engine.open_stream(request(b"abcdef", 50)):
            for _ in range(num_steps):
                await bench.finish_step()
            await bench.device.wait_submitted()
            await trio.testing.wait_all_tasks_blocked()
        while bench.device.unfinished:
            await bench.finish_step()
    buckets = {
        sample.labels["le"]: sample.value
        for metric in bench.engine.statistics.cancel_to_free_steps.collect()
        for sample in metric.samples
        if sample.name.endswith("_bucket")
    }
    assert buckets[f"{depth:.1f}"] == buckets["+Inf"] == 4
    bench.check_idle()


async def test_a_request_that_runs_out_of_time_ends_with_abort(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"abc", 50, timeout_s=5)) as stream:
        await bench.finish_step()
        await stream.receive()
        (delta,) = await stream.receive()
        assert delta.finish is not None
        assert delta.finish.reason == "abort"
        assert trio.current_time() == pytest.approx(stream.opened_at + 5)
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
