"""Promise 5: nothing waits for a client; a stream is bounded, conflating, and harmless if left."""

import pytest
import trio
import trio.testing

from tests.engine.kit import Bench, StartBench, expected, read_all, request
from trioserve.core import FinishReason
from trioserve.engine.choice import STREAM_CAPACITY_TOKENS
from trioserve.engine.stream import RequestStream
from trioserve.scheduler.sequence import SequenceState

NUM_TOKENS = 2 * STREAM_CAPACITY_TOKENS + 7


async def settle(bench: Bench) -> None:
    """Let the driver do all that it can without a reader."""
    await trio.testing.wait_all_tasks_blocked()
    assert not bench.device.unfinished


def state_of(stream: RequestStream) -> SequenceState:
    return stream.choices[0].sequence.state


async def test_a_sequence_stops_when_its_reader_is_a_full_stream_behind(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_stream(request(b"abc", NUM_TOKENS)) as stream:
        await settle(bench)
        # At depth 2 as well: credit covers the steps in flight, so none runs over or in vain.
        assert stream.num_output_tokens == STREAM_CAPACITY_TOKENS
        assert len(bench.runner.plans) == STREAM_CAPACITY_TOKENS
        assert state_of(stream) is SequenceState.PAUSED
        assert bench.engine.statistics.wasted_tokens._value.get() == 0
    bench.check_idle()


async def test_what_has_piled_up_comes_out_as_one_delta(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_stream(request(b"abc", NUM_TOKENS)) as stream:
        await settle(bench)
        (delta,) = await stream.receive()
        assert delta.num_tokens == STREAM_CAPACITY_TOKENS
        assert delta.text == expected(b"abc", STREAM_CAPACITY_TOKENS)
        assert delta.finish is None


async def test_a_delta_may_hold_the_last_tokens_and_the_finish(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_stream(request(b"abc", 9)) as stream:
        await settle(bench)
        (delta,) = await stream.receive()
        assert (delta.text, delta.num_tokens) == (expected(b"abc", 9), 9)
        assert delta.finish is not None
        assert delta.finish.reason is FinishReason.LENGTH


async def test_a_stalled_stream_resumes_when_it_is_read_with_the_same_text(
    start: StartBench,
) -> None:
    bench = await start()
    with bench.engine.open_stream(request(b"abc", NUM_TOKENS)) as stream:
        text = ""
        num_deltas = 0
        while not stream.is_finished or stream.choices[0].has_news:
            await settle(bench)
            (delta,) = await stream.receive()
            text += delta.text
            num_deltas += 1
        assert text == expected(b"abc", NUM_TOKENS)
        assert num_deltas == 3
        assert bench.engine.statistics.recomputed_tokens._value.get() == 0
    bench.check_idle()


async def test_a_stalled_stream_gives_its_slot_to_one_that_waits(start: StartBench) -> None:
    bench = await start(max_running_requests=1)
    with bench.engine.open_stream(request(b"stalled", NUM_TOKENS)) as stalled:
        await settle(bench)
        with bench.engine.open_stream(request(b"waiting", 20)) as waiting:
            assert await read_all(waiting) == [expected(b"waiting", 20)]
        assert state_of(stalled) is SequenceState.PAUSED
        assert await read_all(stalled) == [expected(b"stalled", NUM_TOKENS)]
    bench.check_idle()


async def test_a_stalled_stream_does_not_fill_the_queue(start: StartBench) -> None:
    bench = await start(max_running_requests=1, max_queued_requests=0)
    with bench.engine.open_stream(request(b"stalled", NUM_TOKENS)):
        await settle(bench)
        with bench.engine.open_stream(request(b"next", 5)) as stream:
            assert await read_all(stream) == [expected(b"next", 5)]
    bench.check_idle()


async def test_a_shortage_takes_the_pages_of_the_stalled_stream_first(start: StartBench) -> None:
    # The stalled one is the oldest and holds 17 pages of 40; the others need 16 each.
    bench = await start(num_pages=40)
    with bench.engine.open_stream(request(b"stalled", NUM_TOKENS)) as stalled:
        await settle(bench)
        texts: list[str] = []

        async def run(prompt: bytes) -> None:
            with bench.engine.open_stream(request(prompt, 60)) as stream:
                texts.extend(await read_all(stream))
                assert stream.choices[0].sequence.num_preemptions == 0

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, b"one")
            nursery.start_soon(run, b"two")
        assert sorted(texts) == sorted([expected(b"one", 60), expected(b"two", 60)])
        assert stalled.choices[0].sequence.num_preemptions == 1
        assert state_of(stalled) is SequenceState.WAITING
        assert await read_all(stalled) == [expected(b"stalled", NUM_TOKENS)]
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


@pytest.mark.case(73)
async def test_the_driver_never_waits_for_a_reader(start: StartBench) -> None:
    bench = await start(num_pages=200)
    with bench.engine.open_stream(request(b"stalled", NUM_TOKENS, num_samples=3)) as stalled:
        await settle(bench)
        num_before = len(bench.runner.plans)
        with bench.engine.open_stream(request(b"reading", 50)) as reading:
            assert await read_all(reading) == [expected(b"reading", 50)]
        # One step a token: the three stalled ones took no part and cost no turn.
        assert len(bench.runner.plans) == num_before + 50
        assert all(len(plan.rows) == 1 for plan in bench.runner.plans[num_before:])
        assert stalled.num_output_tokens == 3 * STREAM_CAPACITY_TOKENS


async def test_the_driver_sleeps_while_every_reader_is_stalled(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_stream(request(b"abc", NUM_TOKENS)) as stream:
        await settle(bench)
        num_before = len(bench.runner.plans)
        await settle(bench)
        assert len(bench.runner.plans) == num_before
        await stream.receive()
        await settle(bench)
        assert len(bench.runner.plans) == num_before + STREAM_CAPACITY_TOKENS


async def test_each_choice_has_its_own_bound_and_one_read_takes_them_all(
    start: StartBench,
) -> None:
    bench = await start(num_pages=200)
    with bench.engine.open_stream(request([b"one", b"two"], NUM_TOKENS)) as stream:
        await settle(bench)
        deltas = await stream.receive()
        assert [(delta.index, delta.num_tokens) for delta in deltas] == [
            (0, STREAM_CAPACITY_TOKENS),
            (1, STREAM_CAPACITY_TOKENS),
        ]
        assert not any(choice.has_news for choice in stream.choices)


async def test_delivery_to_a_cancelled_reader_does_not_hurt_the_driver(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    scope = trio.CancelScope()

    async def leave() -> None:
        with scope, bench.engine.open_stream(request(b"leaving", 50)) as stream:
            while True:
                await stream.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
        with bench.engine.open_stream(request(b"staying", 10)) as staying:
            await bench.finish_step()
            await bench.device.wait_submitted()
            # The reader is cancelled just before the driver publishes its next token.
            bench.device.finish()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            bench.finish_all()
            assert await read_all(staying) == [expected(b"staying", 10)]
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_token_published_to_a_reader_that_is_cancelled_at_once_is_not_lost(
    start: StartBench,
) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"abc", 5)) as stream:
        scope = trio.CancelScope()

        async def receive() -> None:
            with scope:
                await stream.receive()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            stream.notify(stream.choices[0])  # as commit does, after the cancellation was requested
        bench.finish_all()
        assert await read_all(stream) == [expected(b"abc", 5)]


@pytest.mark.parametrize("num_steps", [0, 1, 3])
async def test_a_reader_that_never_reads_leaves_nothing_behind(
    start: StartBench, num_steps: int
) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"abc", 3)):
        for _ in range(num_steps):
            await bench.finish_step()
    while bench.device.unfinished:
        await bench.finish_step()
    bench.check_idle()


async def test_a_request_times_out_although_its_reader_is_stuck(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start()
    with bench.engine.open_stream(request(b"stuck", 200, timeout_s=5.0)) as stream:
        await trio.sleep(4.0)
        assert stream.choices[0].finish is None
        await trio.sleep(2.0)
        finish = stream.choices[0].finish
        assert finish is not None
        assert finish.reason == "abort"
        assert bench.engine.batch.pool.statistics().leased == 0
        assert bench.engine.statistics.aborted.labels("timeout")._value.get() == 1
    bench.check_idle()
