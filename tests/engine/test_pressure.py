"""Promise 6: pages run short, requests end at awkward moments, and no text differs for it.

A shortage is made by sizes: pages hold four tokens, so a prompt of 10 and an output of 14 need six
pages, and a pool of 15 holds two requests and a half.
"""

import pytest
import trio
import trio.testing
from attrs import frozen

from tests.engine.kit import Bench, StartBench, expected, read_all, request
from trioserve.core import Finish, FinishReason
from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.stream import RequestStream

PROMPTS = [bytes([65 + index]) * 10 for index in range(8)]


@frozen
class Run:
    """What a run of `PROMPTS` came to, request by request."""

    texts: list[str]
    preemptions: list[int]


async def run_prompts(bench: Bench, max_tokens: int = 14) -> Run:
    """All of `PROMPTS`, each read as it comes; no step finishes before all have arrived."""
    bench.device.is_automatic = False
    texts = [""] * len(PROMPTS)
    streams: dict[int, RequestStream] = {}

    async def run(index: int) -> None:
        with bench.engine.open_stream(request(PROMPTS[index], max_tokens)) as stream:
            streams[index] = stream
            (texts[index],) = await read_all(stream)

    async with trio.open_nursery() as nursery:
        for index in range(len(PROMPTS)):
            nursery.start_soon(run, index)
            await trio.testing.wait_all_tasks_blocked()  # in this order of arrival
        bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
    return Run(
        texts,
        [streams[index].choices[0].sequence.num_preemptions for index in range(len(PROMPTS))],
    )


@pytest.mark.case(95)
async def test_eight_requests_over_pages_for_two_and_a_half_read_as_without_pressure(
    start: StartBench,
) -> None:
    relaxed = await run_prompts(await start(num_pages=64))
    assert relaxed.preemptions == [0] * 8
    assert relaxed.texts == [expected(prompt, 14) for prompt in PROMPTS]
    pressed = await run_prompts(await start(num_pages=15))
    assert pressed.texts == relaxed.texts
    assert sum(pressed.preemptions) > 0, "there was no shortage"


@pytest.mark.case(95)
async def test_preemptions_are_bounded_and_spare_the_oldest(start: StartBench) -> None:
    preemptions = (await run_prompts(await start(num_pages=15))).preemptions
    assert preemptions[0] == 0
    for number_of_older, num_preemptions in enumerate(preemptions):
        # To be admitted again needs room for all its tokens: an older one has ended meanwhile.
        assert num_preemptions <= number_of_older


async def test_recomputed_tokens_are_counted_and_not_billed(start: StartBench) -> None:
    bench = await start(num_pages=15)
    await run_prompts(bench)
    statistics = bench.engine.statistics
    assert statistics.recomputed_tokens._value.get() > 0
    assert statistics.generation_tokens._value.get() == 8 * 14
    num_sampled = sum(row.is_sampled for plan in bench.runner.plans for row in plan.rows)
    assert num_sampled == 8 * 14 + statistics.wasted_tokens._value.get()


async def test_a_preempted_request_leaves_like_any_other(start: StartBench) -> None:
    bench = await start(num_pages=10, is_automatic=False)
    with bench.engine.open_stream(request(PROMPTS[0], 20)) as old:
        with bench.engine.open_stream(request(PROMPTS[1], 20)) as new:
            while new.choices[0].sequence.num_preemptions == 0:
                await bench.finish_step()
            num_billed = new.num_output_tokens
        bench.finish_all()
        assert await read_all(old) == [expected(PROMPTS[0], 20)]
    assert new.num_output_tokens == num_billed
    assert old.choices[0].sequence.num_preemptions == 0
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


@pytest.mark.case(92)
async def test_a_request_that_fills_the_pool_waits_its_turn_and_runs(start: StartBench) -> None:
    bench = await start(num_pages=6)
    texts: dict[bytes, list[str]] = {}

    async def run(prompt: bytes, max_tokens: int) -> None:
        with bench.engine.open_stream(request(prompt, max_tokens)) as stream:
            texts[prompt] = await read_all(stream)

    sizes = [(b"small", 6), (b"fills it", 17), (b"late", 9), (b"fills it too", 13)]
    async with trio.open_nursery() as nursery:
        for prompt, max_tokens in sizes:
            nursery.start_soon(run, prompt, max_tokens)
    assert texts == {prompt: [expected(prompt, max_tokens)] for prompt, max_tokens in sizes}
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_cancels_under_pressure_change_no_byte_of_a_survivor(start: StartBench) -> None:
    bench = await start(num_pages=12, max_running_requests=6)
    texts: dict[int, list[str]] = {}

    async def survive(index: int) -> None:
        with bench.engine.open_stream(request(PROMPTS[index], 14)) as stream:
            texts[index] = await read_all(stream)

    async def leave_early(index: int) -> None:
        with trio.CancelScope() as scope:
            with bench.engine.open_stream(request(bytes([index]) * (index % 11 + 8), 25)) as stream:
                for _ in range(index % 14):
                    await stream.receive()
                scope.cancel()
                await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for index in range(120):
            nursery.start_soon(leave_early, index)
            if index % 30 == 7:
                nursery.start_soon(survive, index // 30)
    assert bench.engine.batch.scheduler.num_preemptions > 0, "there was no shortage"
    assert texts == {index: [expected(PROMPTS[index], 14)] for index in range(4)}
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def reach_last_step(bench: Bench, stream: RequestStream) -> None:
    """Step until the only token that is missing is being sampled."""
    (choice,) = stream.choices
    while choice.num_tokens < choice.sequence.max_tokens - 1:
        await bench.finish_step()
    await bench.device.wait_submitted()
    assert choice.finish is None


async def test_an_abort_before_the_last_token_is_committed_wins(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"abc", 4)) as stream:
        await reach_last_step(bench, stream)
        # The device has finished, and the driver will hear of it in its next turn.
        bench.device.finish()
        bench.engine.abort(stream, AbortReason.CANCELLED)
        await trio.testing.wait_all_tasks_blocked()
        assert stream.choices[0].finish == Finish(FinishReason.ABORT)
        assert stream.num_output_tokens == 3
        assert bench.engine.statistics.wasted_tokens._value.get() == 1
    bench.check_idle()


async def test_an_abort_after_the_last_token_is_committed_changes_nothing(
    start: StartBench,
) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"abc", 4)) as stream:
        await reach_last_step(bench, stream)
        await bench.finish_step()
        bench.engine.abort(stream, AbortReason.CANCELLED)
        assert stream.choices[0].finish == Finish(FinishReason.LENGTH)
        assert await read_all(stream) == [expected(b"abc", 4)]
    assert not next(iter(bench.engine.statistics.aborted.collect())).samples
    bench.check_idle()


async def test_leaving_in_the_step_that_finishes_frees_each_page_once(
    start: StartBench, depth: int
) -> None:
    bench = await start(is_automatic=False)
    whole = expected(b"abc", 20)
    # At depth 2 the stop is found while a step that still computes the sequence is in flight.
    with bench.engine.open_stream(request(b"abc", 20, stop=(whole[5:8],))) as stream:
        while stream.choices[0].finish is None:
            await bench.finish_step()
        assert len(bench.device.unfinished) == depth - 1
        census = bench.engine.batch.pool.statistics()
        assert census.leased == 0
        assert (census.quarantined > 0) == (depth == 2)
    bench.engine.batch.check()
    while bench.device.unfinished:
        await bench.finish_step()
    bench.check_idle()


@pytest.mark.parametrize("num_finished", range(3))
async def test_one_choice_may_finish_in_the_step_that_another_is_aborted_in(
    start: StartBench, num_finished: int
) -> None:
    bench = await start(is_automatic=False)
    prompts = [b"a", b"b", b"c"]
    # Prompts of different lengths end in different steps with the same stop string.
    whole = [expected(prompt, 12, index) for index, prompt in enumerate(prompts)]
    stops = tuple(sorted({text[4 * index + 3] for index, text in enumerate(whole)}))
    with bench.engine.open_stream(request(prompts, 12, stop=stops)) as stream:
        while sum(choice.finish is not None for choice in stream.choices) < num_finished:
            await bench.finish_step()
        finished = [choice.finish for choice in stream.choices]
        bench.engine.abort(stream, AbortReason.CANCELLED)
        for before, choice in zip(finished, stream.choices, strict=True):
            assert choice.finish == (before or Finish(FinishReason.ABORT))
    while bench.device.unfinished:
        await bench.finish_step()
    bench.check_idle()
