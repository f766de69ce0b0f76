"""The seam app as a real process, started in each of the three ways."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from trioserve.testing.server_process import ServerProcess, free_port

HERE = Path(__file__).parent
STALL_TIMEOUT_S = 0.5
KEEP_ALIVE_S = 1
WAYS = ("serve", "hypercorn-trio", "hypercorn-asyncio")


def start_seam_app(way: str) -> ServerProcess:
    env = {
        "PYTHONPATH": str(HERE.parents[1]),
        "SEAM_STALL_TIMEOUT_S": str(STALL_TIMEOUT_S),
        "SEAM_KEEP_ALIVE_S": str(KEEP_ALIVE_S),
    }
    if way == "serve":
        port = free_port()
        command = [sys.executable, str(HERE / "seam_app.py"), str(port)]
        return ServerProcess(command, port=port, env=env)
    worker = way.removeprefix("hypercorn-")
    flags = ("--worker-class", worker, "--keep-alive", str(KEEP_ALIVE_S))
    return ServerProcess.hypercorn("seam_app:app", *flags, env=env, directory=HERE)


@pytest.fixture(scope="session", params=WAYS)
def running_server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with start_seam_app(request.param) as server:
        yield server


@pytest.fixture
async def server(running_server: ServerProcess) -> AsyncIterator[ServerProcess]:
    """A server that all tests of one way to start share; each test counts under its own id."""
    await running_server.wait_ready("/now")
    yield running_server
    assert running_server.exit_code is None, running_server.output


@pytest.fixture
def key() -> str:
    """An id for the requests of one test, on a server that many tests share."""
    return uuid4().hex
