"""The documented `curl` commands, as they stand there but for address and served name."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from attrs import frozen

from tests.clients.kit import MODEL, Client, quick_server, wait_serving
from trioserve.testing.server_process import ServerProcess

AS_JSON = ("-H", "Content-Type: application/json")
STATUS = ("-w", "\n%{http_code}")


@frozen
class Command:
    """What is asked for; a body makes it a POST."""

    path: str
    body: dict[str, Any] | None = None
    arguments: tuple[str, ...] = ()

    def start(self, server: ServerProcess) -> Client:
        """Its output is the answer, and the status in a last line."""
        sent = {"model": MODEL, **(self.body or {})}
        data = () if self.body is None else (*AS_JSON, "-d", json.dumps(sent))
        url = f"http://{server.host}:{server.port}{self.path}"
        return Client("curl", "-sS", url, *self.arguments, *data, *STATUS)


def question(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


SYSTEM_AND_USER = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France?"},
]
COMMANDS = {
    "completion": Command(
        "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 128, "temperature": 0.8}
    ),
    "chat": Command(
        "/v1/chat/completions",
        {"messages": SYSTEM_AND_USER, "max_tokens": 100, "temperature": 0.7},
    ),
    "streamed chat": Command(
        "/v1/chat/completions",
        question("Write a haiku about programming.", max_tokens=50, stream=True),
        ("--no-buffer",),
    ),
    "raw prompt": Command(
        "/v1/chat/completions",
        {"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0.8},
    ),
    "top_k": Command(
        "/v1/chat/completions",
        question("Generate creative text.", max_tokens=200, temperature=0.9, top_p=0.95, top_k=50),
    ),
    "health": Command("/health"),
    "information": Command("/get_model_info"),
}


@pytest.fixture(scope="session")
def curl() -> None:
    """Only where the machine has it."""
    if shutil.which("curl") is None:
        reason = "the documented commands need curl"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="module")
def all_outputs(running_server: ServerProcess, curl: None) -> dict[str, str]:
    """What every command printed; they run at once, since the server computes them as one batch."""
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(command.start(running_server))
            for name, command in COMMANDS.items()
        }
        return {name: client.output() for name, client in clients.items()}


@pytest.fixture
def output(server: ServerProcess, all_outputs: dict[str, str]) -> Callable[[str], str]:
    """`output(name)` of a command."""
    return all_outputs.__getitem__


def answered(output: str, *, status: int = 200) -> Any:
    body, _, code = output.rpartition("\n")
    assert int(code) == status, output
    return json.loads(body)


@pytest.mark.row("S-X-01")
def test_a_completion(output: Callable[[str], str]) -> None:
    got = answered(output("completion"))
    assert got["object"] == "text_completion"
    assert isinstance(got["choices"][0]["text"], str)
    assert 0 < got["usage"]["completion_tokens"] <= 128


@pytest.mark.row("S-X-05")
def test_a_chat_with_a_system_message(output: Callable[[str], str]) -> None:
    got = answered(output("chat"))
    assert got["object"] == "chat.completion"
    assert isinstance(got["choices"][0]["message"]["content"], str)


@pytest.mark.row("S-X-06", "S-G-003")
def test_a_streamed_chat(output: Callable[[str], str]) -> None:
    *events, rest = output("streamed chat").split("\n\n")
    assert rest.split() == ["200"]
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"][0]["finish_reason"] in {"length", "stop"}


@pytest.mark.row("S-X-10", "S-H-007")
def test_a_raw_prompt_is_answered_as_a_chat(output: Callable[[str], str]) -> None:
    got = answered(output("raw prompt"))
    assert got["object"] == "chat.completion"
    (choice,) = got["choices"]
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    # The chat template would have added its own.
    assert got["usage"]["prompt_tokens"] == 4


@pytest.mark.row("S-X-11")
def test_top_k_is_a_field_of_the_body(output: Callable[[str], str]) -> None:
    got = answered(output("top_k"))
    assert isinstance(got["choices"][0]["message"]["content"], str)


@pytest.mark.row("S-X-14", "S-M-004", "S-M-005")
def test_health_and_model_information(output: Callable[[str], str]) -> None:
    assert answered(output("health")) == {"status": "ok"}
    information = answered(output("information"))
    assert information["served_model_name"] == MODEL
    assert information["is_generation"] is True


@pytest.mark.row("S-X-16", "S-A-002", "S-A-003", "S-A-004", "S-E-002")
@pytest.mark.usefixtures("curl")
def test_a_key_opens_the_server() -> None:
    with quick_server(api_key="your-secret-key") as server:
        wait_serving(server)
        for header, status in [
            ("Authorization: Bearer your-secret-key", 200),
            ("Authorization: Bearer another-key", 401),
            ("X-Nothing: at all", 401),
        ]:
            command = Command("/v1/chat/completions", question("Hello!"), ("-H", header))
            with command.start(server) as client:
                got = answered(client.output(), status=status)
            assert got["object"] == ("chat.completion" if status == 200 else "error")
