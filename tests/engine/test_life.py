"""Loading, dying and draining: what requests and the process see (promises 7 and 8)."""

import pytest
import trio
import trio.testing

from tests.engine.kit import StartBench, expected, read_all, request
from trioserve.config import ServerConfig
from trioserve.engine.engine import DEATH_NOTICE_S, SLOW_STEP_S, Engine, EngineState
from trioserve.errors import ConfigError, EngineDead, Unavailable
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_model import FakeRunner, fake_model


def an_engine(device: FakeDevice, load_error: Exception | None = None) -> Engine:
    def load(_config: ServerConfig) -> object:
        if load_error is not None:
            raise load_error
        return fake_model(FakeRunner(num_pages=64, page_size=4))

    return Engine(ServerConfig(), load, device)  # type: ignore[arg-type]


async def test_requests_are_refused_while_the_model_loads() -> None:
    engine = an_engine(FakeDevice())
    with pytest.raises(Unavailable) as refused, engine.open_stream(request(b"a")):
        pass
    assert (refused.value.code, refused.value.retry_after_s) == ("model_loading", 5)


async def test_a_failed_load_is_seen_for_a_second_and_then_raised(
    autojump_clock: trio.testing.MockClock,
) -> None:
    engine = an_engine(FakeDevice(), ConfigError("no such model"))
    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="no such model")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.run)
            await trio.testing.wait_all_tasks_blocked()
            assert engine.state is EngineState.DEAD
            await trio.sleep(DEATH_NOTICE_S / 2)
            with pytest.raises(Unavailable) as refused:
                engine.check_serving()
            assert refused.value.code == "engine_dead"


async def test_a_dead_driver_fails_every_request_and_then_raises(
    autojump_clock: trio.testing.MockClock, depth: int
) -> None:
    device = FakeDevice(max_in_flight=depth)
    engine = an_engine(device)
    seen: list[str] = []

    async def expect_death(prompt: bytes) -> None:
        with engine.open_stream(request(prompt)) as stream:
            with pytest.raises(EngineDead):
                await read_all(stream)
            seen.append(engine.state)

    started_at = trio.current_time()
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="device lost")):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            await engine.ready.wait()
            for prompt in (b"one", b"two", b"three"):
                nursery.start_soon(expect_death, prompt)
            await device.wait_submitted()
            await trio.testing.wait_all_tasks_blocked()
            device.is_automatic = True  # what else is in flight finishes when it is waited for
            device.finish(RuntimeError("device lost"))
    assert seen == [EngineState.DEAD] * 3
    assert trio.current_time() - started_at == pytest.approx(DEATH_NOTICE_S)
    assert device.is_closed


async def test_a_driver_that_dies_while_draining_is_raised_although_the_drain_cancels_it(
    autojump_clock: trio.testing.MockClock, depth: int
) -> None:
    device = FakeDevice(max_in_flight=depth)
    engine = an_engine(device)

    async def expect_death() -> None:
        with engine.open_stream(request(b"open")) as stream, pytest.raises(EngineDead):
            await read_all(stream)

    async def lose_device() -> None:
        await trio.testing.wait_all_tasks_blocked()
        device.is_automatic = True
        device.finish(RuntimeError("device lost"))

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="device lost")):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            await engine.ready.wait()
            nursery.start_soon(expect_death)
            await device.wait_submitted()
            nursery.start_soon(lose_device)
            await engine.drain(30.0)
            assert engine.state is EngineState.DEAD
            nursery.cancel_scope.cancel()


async def test_a_drain_lets_open_requests_finish_and_takes_no_new_ones(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    texts: list[str] = []
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with bench.engine.open_stream(request(b"open", 12)) as stream:
                texts.extend(await read_all(stream))

        nursery.start_soon(run)
        await bench.finish_step()
        nursery.start_soon(bench.engine.drain, 30.0)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Unavailable) as refused, bench.engine.open_stream(request(b"new")):
            pass
        assert refused.value.code == "shutting_down"
        bench.finish_all()
    assert texts == [expected(b"open", 12)]
    bench.check_idle()


async def test_what_outlasts_the_drain_ends_with_abort(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start(is_automatic=False)
    started_at = trio.current_time()
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with bench.engine.open_stream(request(b"long", 50)) as stream:
                await read_all(stream)
                (finish,) = (choice.finish for choice in stream.choices)
                assert finish is not None
                reasons.append(finish.reason)

        nursery.start_soon(run)
        await bench.finish_step()
        await bench.engine.drain(3.0)
        assert trio.current_time() - started_at == pytest.approx(3.0)
    assert reasons == ["abort"]
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_reader_that_takes_nothing_does_not_outlast_the_drain(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start()
    started_at = trio.current_time()
    with bench.engine.open_stream(request(b"stuck", 100)):
        await trio.testing.wait_all_tasks_blocked()
        await bench.engine.drain(2.0)
        assert trio.current_time() - started_at < 3.0
        assert bench.engine.batch.pool.statistics().leased == 0
    bench.check_idle()


async def test_cancelling_the_engine_waits_for_the_step_in_flight(depth: int) -> None:
    device = FakeDevice(max_in_flight=depth)
    engine = an_engine(device)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        await engine.ready.wait()
        with engine.open_stream(request(b"abc")):
            await device.wait_submitted()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                assert not device.is_closed, "the device was given back under a running step"
                device.is_automatic = True
                while device.unfinished:
                    device.finish()
    assert device.is_closed
    assert engine.batch.pool.statistics().free == 64


async def test_a_step_that_does_not_finish_is_seen_by_health(
    start: StartBench, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"abc", 5)):
        await bench.device.wait_submitted()
        await trio.sleep(SLOW_STEP_S / 2)
        bench.engine.check_healthy()
        await trio.sleep(SLOW_STEP_S)
        with pytest.raises(Unavailable, match="No step has finished for 45 s"):
            bench.engine.check_healthy()
        await bench.finish_step()
        bench.engine.check_healthy()
