"""`start`: the HTTP app over an engine over fakes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from tests.api.kit import ApiBench, Script, StartApi, open_api


@pytest.fixture
async def start(nursery: trio.Nursery) -> AsyncIterator[StartApi]:
    benches: list[ApiBench] = []

    async def start_api(*scripts: Script, **settings: Any) -> ApiBench:
        benches.append(await open_api(nursery, *scripts, **settings))
        return benches[-1]

    try:
        yield start_api
    finally:
        for bench in benches:
            # The driver waits for steps in flight before it lets itself be cancelled.
            bench.finish_all()
