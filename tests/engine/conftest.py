"""`start`: an engine over fakes, at both pipeline depths."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from tests.engine.kit import Bench, StartBench
from trioserve.config import ServerConfig
from trioserve.engine.engine import Engine
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_model import FakeRunner, fake_model


@pytest.fixture(params=[1, 2], ids=["depth1", "depth2"])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def start(depth: int, nursery: trio.Nursery) -> AsyncIterator[StartBench]:
    benches: list[Bench] = []

    async def start_bench(
        *,
        num_pages: int = 64,
        page_size: int = 4,
        max_step_tokens: int = 16,
        is_automatic: bool = True,
        poison: int | None = None,
        **settings: Any,
    ) -> Bench:
        device = FakeDevice(max_in_flight=depth, is_automatic=is_automatic)
        runner = FakeRunner(num_pages=num_pages, page_size=page_size, poison=poison)
        engine = Engine(
            ServerConfig(**settings),
            lambda _config: fake_model(runner, max_step_tokens=max_step_tokens),
            device,
            check_after_steps=True,
        )
        await nursery.start(engine.run)
        await engine.ready.wait()
        benches.append(Bench(engine, device, runner))
        return benches[-1]

    try:
        yield start_bench
    finally:
        for bench in benches:
            # The driver waits for steps in flight before it lets itself be cancelled.
            bench.finish_all()
