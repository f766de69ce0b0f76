"""The documented `curl` commands, as they stand there but for address and served name."""

import json
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.kit import MODEL, quick_server, run, wait_serving
from trioserve.testing.server_process import ServerProcess

Curl = Callable[..., str]
AS_JSON = ("-H", "Content-Type: application/json")
STATUS = ("-w", "\n%{http_code}")


@pytest.fixture(scope="session")
def curl() -> Curl:
    """`curl(server, path, *arguments, **body)`: the answer, and the status in a last line."""
    if shutil.which("curl") is None:
        reason = "the documented commands need curl"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)

    def ask(server: ServerProcess, path: str, *arguments: str, **body: Any) -> str:
        data = (*AS_JSON, "-d", json.dumps({"model": MODEL, **body})) if body else ()
        url = f"http://{server.host}:{server.port}{path}"
        return run("curl", "-sS", url, *arguments, *data, *STATUS)

    return ask


def answered(output: str, *, status: int = 200) -> Any:
    body, _, code = output.rpartition("\n")
    assert int(code) == status, output
    return json.loads(body)


@pytest.mark.row("S-X-01")
def test_a_completion(server: ServerProcess, curl: Curl) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 128, "temperature": 0.8}
    got = answered(curl(server, "/v1/completions", **body))
    assert got["object"] == "text_completion"
    assert isinstance(got["choices"][0]["text"], str)
    assert 0 < got["usage"]["completion_tokens"] <= 128


@pytest.mark.row("S-X-05")
def test_a_chat_with_a_system_message(server: ServerProcess, curl: Curl) -> None:
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    body = {"messages": messages, "max_tokens": 100, "temperature": 0.7}
    got = answered(curl(server, "/v1/chat/completions", **body))
    assert got["object"] == "chat.completion"
    assert isinstance(got["choices"][0]["message"]["content"], str)


@pytest.mark.row("S-X-06", "S-G-003")
def test_a_streamed_chat(server: ServerProcess, curl: Curl) -> None:
    messages = [{"role": "user", "content": "Write a haiku about programming."}]
    body = {"messages": messages, "max_tokens": 50, "stream": True}
    output = curl(server, "/v1/chat/completions", "--no-buffer", **body)
    *events, rest = output.split("\n\n")
    assert rest.split() == ["200"]
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"][0]["finish_reason"] in {"length", "stop"}


@pytest.mark.row("S-X-10", "S-H-007")
def test_a_raw_prompt_is_answered_as_a_chat(server: ServerProcess, curl: Curl) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0.8}
    got = answered(curl(server, "/v1/chat/completions", **body))
    assert got["object"] == "chat.completion"
    (choice,) = got["choices"]
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    # The chat template would have added its own.
    assert got["usage"]["prompt_tokens"] == 4


@pytest.mark.row("S-X-11")
def test_top_k_is_a_field_of_the_body(server: ServerProcess, curl: Curl) -> None:
    messages = [{"role": "user", "content": "Generate creative text."}]
    sampling = {"temperature": 0.9, "top_p": 0.95, "top_k": 50}
    got = answered(
        curl(server, "/v1/chat/completions", messages=messages, max_tokens=200, **sampling)
    )
    assert isinstance(got["choices"][0]["message"]["content"], str)


@pytest.mark.row("S-X-14", "S-M-004", "S-M-005")
def test_health_and_model_information(server: ServerProcess, curl: Curl) -> None:
    assert answered(curl(server, "/health")) == {"status": "ok"}
    information = answered(curl(server, "/get_model_info"))
    assert information["served_model_name"] == MODEL
    assert information["is_generation"] is True


@pytest.mark.row("S-X-16", "S-A-002", "S-A-003", "S-A-004", "S-E-002")
def test_a_key_opens_the_server(curl: Curl) -> None:
    messages = [{"role": "user", "content": "Hello!"}]
    with quick_server(api_key="your-secret-key") as server:
        wait_serving(server)
        for header, status in [
            ("Authorization: Bearer your-secret-key", 200),
            ("Authorization: Bearer another-key", 401),
            ("X-Nothing: at all", 401),
        ]:
            output = curl(server, "/v1/chat/completions", "-H", header, messages=messages)
            got = answered(output, status=status)
            assert got["object"] == ("chat.completion" if status == 200 else "error")
