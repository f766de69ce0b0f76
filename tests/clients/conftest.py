"""Servers that all of these tests share, and the clients' environments.

These tests install clients that the project does not depend on, so they run only where they are
asked for: `just test-clients`, or any path of this folder given to pytest.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.clients.environments import Environment, open_environment
from tests.clients.kit import EMBEDDING_MODEL, MODEL, wait_idle, wait_serving
from tests.process.kit import FAKE, REAL, start
from trioserve.config import PACKAGED_EMBEDDER
from trioserve.testing.server_process import ServerProcess

HERE = Path(__file__).parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """True leaves a path out; None is no opinion."""
    base = config.invocation_params.dir
    named = [base / argument.partition("::")[0] for argument in config.args]
    return None if any(HERE in (path, *path.parents) for path in named) else True


@pytest.fixture(scope="session")
def environment() -> Callable[[str], Environment]:
    """`environment(name)`; made at most once a session."""
    return cache(open_environment)


@pytest.fixture(scope="session")
def running_server() -> Iterator[ServerProcess]:
    """The default model, with an embedding model beside it, in a process of its own."""
    settings = {
        "served_model_name": MODEL,
        "max_total_tokens": "16384",
        "embedding_model_path": PACKAGED_EMBEDDER,
        "embedding_served_model_name": EMBEDDING_MODEL,
    }
    with start("serve", REAL, settings=settings) as process:
        wait_serving(process)
        yield process


@pytest.fixture
def server(running_server: ServerProcess) -> Iterator[ServerProcess]:
    """The shared server, which no test leaves busy or broken."""
    yield running_server
    assert running_server.exit_code is None, running_server.output
    wait_idle(running_server)


@pytest.fixture
def start_fake() -> Iterator[Callable[..., ServerProcess]]:
    """`start_fake(env=…, **settings)`: a server whose model costs nothing, for one test."""
    processes: list[ServerProcess] = []

    def start_one(*, env: dict[str, str] | None = None, **settings: str) -> ServerProcess:
        settings = {"served_model_name": MODEL, **settings}
        processes.append(start("serve", FAKE, settings=settings, env=env))
        return processes[-1]

    yield start_one
    for process in processes:
        process.__exit__(None, None, None)
