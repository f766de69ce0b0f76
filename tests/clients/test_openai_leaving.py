"""What a request held is free once `openai` for Python has given it up."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.environments import OPENAI_CLIENTS, Environment
from tests.clients.kit import MODEL, assert_left, base_url, start_script
from trioserve.testing.server_process import ServerProcess

Leave = Callable[[str], Any]


@pytest.fixture(params=OPENAI_CLIENTS, ids="-".join)
def leave(
    request: pytest.FixtureRequest,
    server: ServerProcess,
    environment: Callable[[str], Environment],
) -> Leave:
    """`leave(how)`: what the client says of it, once the server has nothing of it any more."""
    version, way = request.param

    def leave_server(how: str) -> Any:
        arguments = way, base_url(server), MODEL, how
        return assert_left(
            server, lambda: start_script(environment(version), "openai_leaving.py", *arguments)
        )

    return leave_server


@pytest.mark.row("S-G-004")
def test_a_timeout_of_the_client_frees_the_pages(leave: Leave) -> None:
    assert leave("timeout") == "APITimeoutError"


@pytest.mark.row("S-G-004")
def test_closing_a_stream_early_frees_the_pages_of_all_its_choices(leave: Leave) -> None:
    contents = leave("close")
    assert contents[:2] == ["", ""], "each choice begins with its role"
    assert all(contents[2:])
