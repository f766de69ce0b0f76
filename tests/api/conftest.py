"""`start`: the HTTP app over an engine over fakes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from tests.api.kit import MODEL, ApiBench, Script, ScriptedRunner, StartApi
from trioserve.api.app import create_app
from trioserve.config import ServerConfig
from trioserve.engine.engine import Engine
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_model import FakeRunner, fake_model
from trioserve.testing.memory_server import MemoryServer


@pytest.fixture
async def start(nursery: trio.Nursery) -> AsyncIterator[StartApi]:
    benches: list[ApiBench] = []

    async def start_api(
        *scripts: Script,
        num_pages: int = 128,
        page_size: int = 4,
        max_model_len: int = 256,
        depth: int = 2,
        is_automatic: bool = True,
        poison: int | None = None,
        is_loaded: bool = True,
        **settings: Any,
    ) -> ApiBench:
        device = FakeDevice(max_in_flight=depth, is_automatic=is_automatic)
        sizes = {"num_pages": num_pages, "page_size": page_size, "poison": poison}
        runner = ScriptedRunner(**sizes, scripts=scripts) if scripts else FakeRunner(**sizes)
        engine = Engine(
            ServerConfig(**{"model_path": MODEL, **settings}),
            lambda _config: fake_model(runner, max_model_len=max_model_len),
            device,
            check_after_steps=True,
        )
        app = create_app(engine)
        benches.append(ApiBench(app, engine, device, runner, MemoryServer(app, nursery)))
        if is_loaded:
            await nursery.start(engine.run)
            await engine.ready.wait()
        return benches[-1]

    try:
        yield start_api
    finally:
        for bench in benches:
            # The driver waits for steps in flight before it lets itself be cancelled.
            bench.finish_all()
