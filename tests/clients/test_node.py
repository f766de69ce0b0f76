"""`openai` for Node, on a Node.js of its own."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import HERE, NODE, Environment
from tests.clients.kit import MODEL, Client, assert_left, base_url
from trioserve.testing.server_process import ServerProcess

Ask = Callable[[str], Any]

PARIS = "The capital of France is Paris."


@pytest.fixture
def start(
    server: ServerProcess, environment: Callable[[str], Environment], tmp_path: Path
) -> Callable[[str], Client]:
    """`start(scenario)` of scenarios.mjs."""
    node = environment(NODE)
    # A module looks for packages in the folders above it, and for nothing in NODE_PATH.
    script = Path(shutil.copy(HERE / "node" / "scenarios.mjs", tmp_path))
    (tmp_path / "node_modules").symlink_to(node.node_modules)
    return lambda scenario: Client(node.node, script, scenario, base_url(server), MODEL)


@pytest.fixture
def ask(start: Callable[[str], Client]) -> Ask:
    def answer(scenario: str) -> Any:
        with start(scenario) as client:
            return client.first_answer()

    return answer


def test_a_chat_is_answered_whole(ask: Ask) -> None:
    got = ask("chat")
    assert got["object"] == "chat.completion"
    (choice,) = got["choices"]
    assert choice["message"] == {"role": "assistant", "content": PARIS, "refusal": None}
    assert choice["finish_reason"] == "stop"


@pytest.mark.row("S-G-003", "S-H-021", "S-H-035")
def test_a_streamed_chat_comes_in_pieces_and_ends_with_the_usage(ask: Ask) -> None:
    chunks = ask("stream")
    contents = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]]
    assert "".join(contents) == PARIS
    assert len(contents) > 3
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 3


@pytest.mark.row("S-H-041")
def test_the_stream_helper_sums_up_to_the_whole_answer(ask: Ask) -> None:
    got = ask("helper")
    assert "".join(got["contents"]) == PARIS
    assert len(got["contents"]) > 3
    (choice,) = got["final"]["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (PARIS, "stop")


def test_a_refused_request_is_the_clients_own_exception(ask: Ask) -> None:
    assert ask("refused") == "BadRequestError"


@pytest.mark.row("S-G-004")
@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("abort", "APIUserAbortError"),
        ("abortStream", {"enough": True, "aborted": True}),
        ("breakOff", {"enough": True, "aborted": False}),
    ],
)
def test_an_abort_frees_the_pages(
    server: ServerProcess, start: Callable[[str], Client], scenario: str, expected: object
) -> None:
    left = assert_left(server, lambda: start(scenario), is_told_to=scenario == "abort")
    assert left == [expected]
