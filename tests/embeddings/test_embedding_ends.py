"""The ways in which an embeddings request may end before its vectors."""

import pytest
import trio
import trio.testing

from tests.embeddings.conftest import StartBench
from tests.embeddings.kit import check_vectors, leave_when_blocked, make_bench, request
from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.embedding import OpenEmbedding
from trioserve.errors import EngineDead, RequestFailed, Unavailable


async def test_leaving_the_queue_leaves_it_at_once(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_running_requests=1)
    batch = bench.engine.embedding_batch
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.embed, b"first")
        await trio.testing.wait_all_tasks_blocked()
        with bench.engine.open_embedding(request(*[b"waits"] * 50)) as opened:
            assert batch.num_waiting == 50
            await leave_when_blocked(opened)
        assert batch.num_waiting == 0
        batch.check()
        bench.finish_all()
    assert bench.planned() == [[b"first"]]
    assert bench.aborted("cancelled") == 1
    bench.check_idle()


async def test_what_is_in_flight_for_a_request_that_left_is_dropped(
    start: StartBench, depth: int
) -> None:
    bench = await start(depth=depth, is_automatic=False, max_step_tokens=2)
    batch = bench.engine.embedding_batch
    with bench.engine.open_embedding(request(b"aa", b"bb", b"cc", b"dd")) as opened:
        await bench.device.wait_submitted()
        await leave_when_blocked(opened)
    assert batch.num_waiting == 0
    assert batch.num_running == depth, "a step in flight keeps its slots until it retires"
    assert not batch.is_idle
    async with trio.open_nursery() as nursery:

        async def survive() -> None:
            check_vectors(await bench.embed(b"ee"), b"ee")

        nursery.start_soon(survive)
        await trio.testing.wait_all_tasks_blocked()
        bench.finish_all()
    steps = [[b"aa"], [b"bb"]][:depth]
    assert bench.planned() == [*steps, [b"ee"]], "a step was planned for a request that had left"
    bench.check_idle()


async def test_an_abort_is_idempotent_and_its_reader_is_told(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_embedding(request(b"a")) as opened:
        for _ in range(3):
            bench.engine.abort(opened, AbortReason.STALLED)
        with pytest.raises(RequestFailed, match="stalled"):
            await opened.wait_vectors()
    assert bench.aborted("stalled") == 1
    assert bench.aborted("cancelled") == 0
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_an_abort_after_the_last_vector_changes_nothing(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_embedding(request(b"a")) as opened:
        await opened.wait_vectors()
        bench.engine.abort(opened, AbortReason.STALLED)
        check_vectors(await opened.wait_vectors(), b"a")
    assert bench.aborted("stalled") == 0


async def test_a_request_that_takes_too_long_is_refused(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start(is_automatic=False, max_running_requests=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.embed, b"first")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Unavailable, match="did not finish within 5 s") as refused:
            await bench.embed(b"second", timeout_s=5.0)
        assert refused.value.code == "overloaded"
        bench.finish_all()
    assert bench.aborted("timeout") == 1
    assert bench.planned() == [[b"first"]]
    bench.check_idle()


async def test_a_deadline_is_kept_although_its_task_is_busy_elsewhere(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start(is_automatic=False, max_running_requests=1, max_step_tokens=1)
    with bench.engine.open_embedding(request(b"a", b"b", timeout_s=5.0)) as opened:
        await trio.sleep(6)
        await bench.finish_step()
        assert opened.is_finished
        assert bench.engine.embedding_batch.num_waiting == 0
    assert bench.aborted("timeout") == 1
    bench.check_idle()


async def test_the_end_of_a_drain_refuses_what_is_not_done(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start(is_automatic=False)

    async def be_refused() -> None:
        with pytest.raises(Unavailable, match="The server is shutting down") as refused:
            await bench.embed(b"a")
        assert refused.value.code == "shutting_down"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(be_refused)
        await trio.testing.wait_all_tasks_blocked()
        await bench.engine.drain(2.0)
    assert bench.aborted("shutdown") == 1
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_drain_waits_for_vectors_and_takes_no_new_texts(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    async with trio.open_nursery() as nursery:

        async def succeed() -> None:
            check_vectors(await bench.embed(b"a"), b"a")

        nursery.start_soon(succeed)
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as drain:
            drain.start_soon(bench.engine.drain, 1000.0)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(Unavailable, match="shutting down"):
                await bench.embed(b"b")
            bench.finish_all()
    bench.check_idle()


async def test_the_death_of_the_driver_reaches_every_open_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = make_bench(is_automatic=False)

    async def be_told(texts: tuple[bytes, ...]) -> None:
        with pytest.raises(EngineDead):
            await bench.embed(*texts)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(bench.engine.run)
            await bench.engine.ready.wait()
            nursery.start_soon(be_told, (b"in flight",))
            nursery.start_soon(be_told, (b"waits",))
            await bench.device.wait_submitted()
            bench.device.finish(RuntimeError("the device is gone"))

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="the device is gone")):
        await run()
    assert bench.aborted("failed") == 2
    assert not bench.engine.embedding_batch.requests


async def test_a_request_is_in_no_step_before_it_is_told_so(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_running_requests=1)
    started: list[str] = []

    async def note(name: str, opened: OpenEmbedding) -> None:
        await opened.wait_started()
        started.append(name)

    with bench.engine.open_embedding(request(b"a")) as first:
        with bench.engine.open_embedding(request(b"b")) as second:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(note, "first", first)
                nursery.start_soon(note, "second", second)
                await trio.testing.wait_all_tasks_blocked()
                assert started == ["first"]
                await bench.finish_step()
                assert started == ["first", "second"]
            bench.finish_all()
