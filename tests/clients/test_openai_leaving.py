"""What a request held is free once `openai` for Python has given it up."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.clients.environments import OPENAI_CLIENTS, Environment
from tests.clients.kit import MODEL, assert_left, base_url, start_script
from trioserve.testing.server_process import ServerProcess

Leave = Callable[[str], list[Any]]


@pytest.fixture
def leave(server: ServerProcess, environment: Callable[[str], Environment]) -> Leave:
    """`leave(how)`: what each client says of it, once the server has nothing of them any more."""

    def leave_server(how: str) -> list[Any]:
        starts = [
            partial(
                start_script,
                *(environment(version), "openai_leaving.py"),
                *(way, base_url(server), MODEL, how),
            )
            for version, way in OPENAI_CLIENTS
        ]
        return assert_left(server, *starts)

    return leave_server


@pytest.mark.row("S-G-004")
def test_a_timeout_of_the_client_frees_the_pages(leave: Leave) -> None:
    assert leave("timeout") == ["APITimeoutError"] * len(OPENAI_CLIENTS)


@pytest.mark.row("S-G-004")
def test_closing_a_stream_early_frees_the_pages_of_all_its_choices(leave: Leave) -> None:
    for contents in leave("close"):
        assert contents[:2] == ["", ""], "each choice begins with its role"
        assert all(contents[2:])
