"""Tiers below the pool: what they keep comes back, to who waits for it, and never wrongly."""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve

from tests.engine.kit import Bench, expected, read_all, request
from trioserve.config import ServerConfig
from trioserve.core import CachedTokens, CacheNamespace
from trioserve.engine.cache_tiers import CacheTiers, Filled, LoadBatch, UnwrittenPage
from trioserve.engine.engine import Engine
from trioserve.engine.state import EngineState
from trioserve.engine.tier_worker import TierWorker
from trioserve.errors import ConfigError, EngineDead
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_model import FakeRunner, fake_model
from trioserve.tiers.page_key import PageKey
from trioserve.tiers.storage import StorageTier

PROMPT = bytes(range(40, 80))
OTHER = bytes(range(80, 120))
HOST_BYTES = 1 << 16


@asynccontextmanager
async def serving(*, num_pages: int = 64, depth: int = 1, **settings: Any) -> AsyncIterator[Bench]:
    """An engine that runs inside the context, as a process would."""
    runner = FakeRunner(num_pages=num_pages, page_size=4)
    device = FakeDevice(max_in_flight=depth, is_automatic=True)
    engine = Engine(
        ServerConfig(**settings),
        lambda _config: fake_model(runner, max_step_tokens=16),
        device,
        check_after_steps=True,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        await engine.ready.wait()
        try:
            yield Bench(engine, device, runner)
        finally:
            nursery.cancel_scope.cancel()


async def answer(bench: Bench, prompt: bytes, **more: Any) -> tuple[str, CachedTokens]:
    """The text of a request, and what its prompt took from the caches."""
    with bench.engine.open_stream(request(prompt, **more)) as stream:
        (text,) = await read_all(stream)
        return text, stream.cached_tokens(0)


def use_up(bench: Bench) -> None:
    """Have the pool forget all that nobody uses."""
    bench.engine.batch.scheduler.tree.flush()


async def test_what_the_pool_has_forgotten_comes_back_from_host_memory(depth: int) -> None:
    async with serving(depth=depth, host_cache_bytes=HOST_BYTES) as bench:
        assert await answer(bench, PROMPT) == (expected(PROMPT, 8), CachedTokens())
        use_up(bench)
        num_fed = sum(plan.num_tokens for plan in bench.runner.plans)
        text, cached = await answer(bench, PROMPT)
        assert text == expected(PROMPT, 8)
        assert cached == CachedTokens(host=36)
        assert sum(plan.num_tokens for plan in bench.runner.plans) == num_fed + 4 + 7
        # Now it is in the pool.
        assert (await answer(bench, PROMPT))[1] == CachedTokens(device=36)
        await trio.testing.wait_all_tasks_blocked()
        bench.check_idle()


async def test_a_restart_finds_what_was_computed_before(tmp_path: Path) -> None:
    async with serving(cache_storage=str(tmp_path)) as bench:
        await answer(bench, PROMPT)
    async with serving(cache_storage=str(tmp_path)) as bench:
        text, cached = await answer(bench, PROMPT)
        assert (text, cached) == (expected(PROMPT, 8), CachedTokens(storage=36))
        # The next turn, with the answer in it, but for its last token, which was never fed.
        text, cached = await answer(bench, PROMPT + text.encode() + b"and so on")
        assert text == expected(PROMPT + expected(PROMPT, 8).encode() + b"and so on", 8)
        assert cached == CachedTokens(device=44)


async def test_the_tiers_add_up_where_each_has_a_part(tmp_path: Path) -> None:
    async with serving(cache_storage=str(tmp_path)) as bench:
        await answer(bench, PROMPT)
    settings = {"cache_storage": str(tmp_path), "host_cache_bytes": HOST_BYTES}
    async with serving(**settings) as bench:
        await answer(bench, PROMPT[:20])
        use_up(bench)
        await answer(bench, PROMPT[:8] + b"else")
        _, cached = await answer(bench, PROMPT)
        assert cached == CachedTokens(device=8, host=12, storage=16)


async def test_salts_share_nothing_below_the_pool_either(tmp_path: Path) -> None:
    async with serving(cache_storage=str(tmp_path), host_cache_bytes=HOST_BYTES) as bench:
        await answer(bench, PROMPT)
        use_up(bench)
        for namespace in (CacheNamespace(salt="a"), CacheNamespace(salt=""), None):
            text, cached = await answer(bench, PROMPT, namespace=namespace)
            assert (text, cached) == (expected(PROMPT, 8), CachedTokens())
        use_up(bench)
        assert (await answer(bench, PROMPT, namespace=CacheNamespace(salt="a")))[1].host == 36


async def test_other_weights_find_nothing_in_the_directory(tmp_path: Path) -> None:
    async with serving(cache_storage=str(tmp_path)) as bench:
        await answer(bench, PROMPT)
    runner = FakeRunner(num_pages=64, page_size=4)
    other = evolve(fake_model(runner, max_step_tokens=16), fingerprint="other weights")
    engine = Engine(
        ServerConfig(cache_storage=str(tmp_path)),
        lambda _config: other,
        device := FakeDevice(is_automatic=True),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        await engine.ready.wait()
        assert (await answer(Bench(engine, device, runner), PROMPT))[1] == CachedTokens()
        nursery.cancel_scope.cancel()


async def wait_loaded(bench: Bench) -> None:
    """Until no load is under way; Trio does not see that a thread is."""
    with trio.fail_after(5):
        while list(bench.engine.batch.scheduler.loads):  # noqa: ASYNC110  # a thread has no event
            await trio.sleep(0.001)


class SlowLoads:
    """Holds every load up in its thread until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        fill = CacheTiers.fill

        def wait_and_fill(tiers: CacheTiers, batch: LoadBatch) -> Filled:
            self.began.set()
            assert self.go.wait(10)
            return fill(tiers, batch)

        monkeypatch.setattr(CacheTiers, "fill", wait_and_fill)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowLoads:
    return SlowLoads(monkeypatch)


async def test_a_request_that_leaves_while_its_prefix_is_loaded_leaves_nothing_behind(
    depth: int, slow: SlowLoads
) -> None:
    async with serving(depth=depth, host_cache_bytes=HOST_BYTES) as bench:
        await answer(bench, PROMPT)
        use_up(bench)
        with bench.engine.open_stream(request(PROMPT)):
            await trio.to_thread.run_sync(slow.began.wait)
            assert bench.engine.batch.pool.statistics().leased == 8
        # The thread still writes to the pages.
        assert bench.engine.batch.pool.statistics().leased == 8
        bench.engine.batch.check()
        slow.go.set()
        await wait_loaded(bench)
        bench.check_idle()
        # One batch was published; the rest of the prefix was not asked for any more.
        assert bench.engine.batch.scheduler.tree.num_pages == 8


async def test_others_go_on_while_a_prefix_is_loaded(depth: int, slow: SlowLoads) -> None:
    async with serving(depth=depth, host_cache_bytes=HOST_BYTES) as bench:
        await answer(bench, PROMPT)
        use_up(bench)
        with bench.engine.open_stream(request(PROMPT)) as waiting:
            await trio.to_thread.run_sync(slow.began.wait)
            assert (await answer(bench, OTHER))[0] == expected(OTHER, 8)
            assert not waiting.is_started
            slow.go.set()
            assert await read_all(waiting) == [expected(PROMPT, 8)]


async def test_those_that_begin_alike_wait_for_one_load(depth: int) -> None:
    async with serving(depth=depth, host_cache_bytes=HOST_BYTES) as bench:
        await answer(bench, PROMPT)
        use_up(bench)
        with bench.engine.open_stream(request(PROMPT, num_samples=3)) as stream:
            texts = await read_all(stream)
        assert texts == [expected(PROMPT, 8, index) for index in range(3)]
        sources = [choice.sequence.cached for choice in stream.choices]
        assert sources == [CachedTokens(host=36), CachedTokens(device=36), CachedTokens(device=36)]


async def test_a_load_takes_no_page_that_the_batch_is_promised() -> None:
    async with serving(num_pages=12, host_cache_bytes=HOST_BYTES) as bench:
        await answer(bench, PROMPT, max_tokens=1)
        use_up(bench)
        with bench.engine.open_stream(request(OTHER, 8)) as older:
            while not older.is_started:
                await trio.lowlevel.checkpoint()
            assert (await answer(bench, PROMPT, max_tokens=1))[0] == expected(PROMPT, 1)
            assert await read_all(older) == [expected(OTHER, 8)]
        assert bench.engine.batch.scheduler.num_preemptions == 0


async def test_a_flush_empties_the_tiers_too(tmp_path: Path) -> None:
    settings = {"cache_storage": str(tmp_path), "host_cache_bytes": HOST_BYTES}
    async with serving(**settings) as bench:
        await answer(bench, PROMPT)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await bench.engine.flush_cache()
        assert (await answer(bench, PROMPT))[1] == CachedTokens()
    async with serving(**settings) as bench:
        # What was computed after the flush.
        assert (await answer(bench, PROMPT))[1] == CachedTokens(storage=36)


async def test_a_directory_that_another_server_has_ends_the_load_with_one_line(
    tmp_path: Path,
) -> None:
    async with serving(cache_storage=str(tmp_path)):
        engine = Engine(
            ServerConfig(cache_storage=str(tmp_path)),
            lambda _config: fake_model(FakeRunner(num_pages=8, page_size=4)),
            FakeDevice(is_automatic=True),
        )
        with pytest.raises(ConfigError, match="is in use by process"):
            await engine.run()


async def test_a_driver_that_dies_says_so_before_the_tiers_have_written_their_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner(num_pages=64, page_size=4)
    device = FakeDevice(is_automatic=False)
    engine = Engine(
        ServerConfig(cache_storage=str(tmp_path)),
        lambda _config: fake_model(runner, max_step_tokens=16),
        device,
    )
    states: list[EngineState] = []
    close = TierWorker._close

    async def note_and_close(worker: TierWorker) -> None:
        states.append(engine.state)
        await close(worker)

    monkeypatch.setattr(TierWorker, "_close", note_and_close)

    async def run() -> None:
        with pytest.raises(RuntimeError, match="the device broke"):
            await engine.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await engine.ready.wait()
        with engine.open_stream(request(PROMPT)) as stream:
            await device.wait_submitted()
            device.finish(RuntimeError("the device broke"))
            with pytest.raises(EngineDead):
                await stream.receive()
    assert states == [EngineState.DEAD]


async def test_a_load_that_fails_lets_the_directory_go(tmp_path: Path) -> None:
    def fail(_config: ServerConfig) -> Any:
        raise ConfigError("no such model")

    engine = Engine(ServerConfig(cache_storage=str(tmp_path)), fail, FakeDevice())
    with pytest.raises(ConfigError, match="no such model"):
        await engine.run()
    async with serving(cache_storage=str(tmp_path)) as bench:
        assert (await answer(bench, PROMPT))[0] == expected(PROMPT, 8)


async def test_what_storage_cannot_reach_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing does not keep up: the first pages that wait are kept, and no page behind a gap."""
    monkeypatch.setattr("trioserve.engine.cache_tiers.MAX_UNWRITTEN_BYTES", 3 * 16)
    may_write = threading.Event()
    write = CacheTiers.write

    def wait_and_write(tiers: CacheTiers, pages: list[UnwrittenPage]) -> None:
        assert may_write.wait(10)
        write(tiers, pages)

    monkeypatch.setattr(CacheTiers, "write", wait_and_write)
    async with serving(cache_storage=str(tmp_path)) as bench:
        await answer(bench, PROMPT)
        tiers = bench.engine.batch.tiers
        assert tiers is not None
        num_dropped = tiers.num_dropped
        assert num_dropped > 0
        may_write.set()
    async with serving(cache_storage=str(tmp_path)) as bench:
        tiers = bench.engine.batch.tiers
        assert tiers is not None
        assert tiers.storage is not None
        num_kept = tiers.storage.statistics().num_pages
        assert num_kept + num_dropped == len(PROMPT + b"12345678") // 4 - 1
        assert (await answer(bench, PROMPT))[1] == CachedTokens(storage=num_kept * 4)


async def test_what_storage_has_lost_is_computed_and_what_came_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(cache_storage=str(tmp_path)) as bench:
        await answer(bench, PROMPT)
    read = StorageTier.read

    def read_damaged(tier: StorageTier, keys: Sequence[PageKey]) -> list[bytes | None]:
        return [*read(tier, keys)[:3], None, *read(tier, keys)[4:]]

    monkeypatch.setattr(StorageTier, "read", read_damaged)
    async with serving(cache_storage=str(tmp_path)) as bench:
        text, cached = await answer(bench, PROMPT)
        assert (text, cached) == (expected(PROMPT, 8), CachedTokens(storage=12))
        await trio.testing.wait_all_tasks_blocked(0.01)
        bench.check_idle()


async def test_a_preempted_sequence_is_brought_back_rather_than_computed_again() -> None:
    async with serving(host_cache_bytes=HOST_BYTES) as bench:
        with bench.engine.open_stream(request(PROMPT, 30)) as stream:
            await stream.receive()
            scheduler = bench.engine.batch.scheduler
            (sequence,) = scheduler._places.running
            scheduler._preempt(sequence)
            use_up(bench)
            num_fed = sum(plan.num_tokens for plan in bench.runner.plans)
            assert sequence.num_tokens > len(PROMPT)
            (rest,) = await read_all(stream)
            assert expected(PROMPT, 30).endswith(rest)
        num_fed = sum(plan.num_tokens for plan in bench.runner.plans) - num_fed
        assert num_fed <= 30 + 4, "the prompt was computed again"
        assert bench.engine.statistics.recomputed_tokens._value.get() < 8
