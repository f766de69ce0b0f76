"""`start`: an engine over fakes with an embedding model; `api`: with the HTTP app around it."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

import pytest
import trio

from tests.api.kit import ApiBench
from tests.embeddings.kit import Bench, make_bench, open_api


class StartBench(Protocol):
    """Keyword arguments: those of `make_bench`."""

    def __call__(self, **settings: Any) -> Awaitable[Bench]: ...


class StartApi(Protocol):
    """The same with the HTTP app around it."""

    def __call__(self, **settings: Any) -> Awaitable[ApiBench]: ...


@pytest.fixture(params=[1, 2], ids=["depth1", "depth2"])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def start(nursery: trio.Nursery) -> AsyncIterator[StartBench]:
    benches: list[Bench] = []

    async def start_bench(**settings: Any) -> Bench:
        bench = make_bench(**settings)
        await nursery.start(bench.engine.run)
        await bench.engine.ready.wait()
        benches.append(bench)
        return bench

    try:
        yield start_bench
    finally:
        for bench in benches:
            # The driver waits for steps in flight before it lets itself be cancelled.
            bench.finish_all()


@pytest.fixture
def api(start: StartBench, nursery: trio.Nursery) -> StartApi:
    async def start_api(**settings: Any) -> ApiBench:
        return open_api(await start(**settings), nursery)

    return start_api
