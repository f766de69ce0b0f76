"""Clients that bring tools, call them for the model, and tell it what came of it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.clients.environments import Environment
from tests.clients.kit import MODEL, base_url, run_script, wait_idle, wait_serving
from trioserve.testing.server_process import ServerProcess, free_port

APP = Path(__file__).with_name("tool_app.py")


@pytest.fixture
def calling_server() -> Iterator[ServerProcess]:
    """Its model calls a tool; see tool_app.py."""
    port = free_port()
    command = [sys.executable, str(APP), "serve", "--port", str(port)]
    with ServerProcess(command, port=port, env={"TRIOSERVE_SERVED_MODEL_NAME": MODEL}) as process:
        wait_serving(process)
        yield process
        wait_idle(process)


@pytest.mark.row("S-N-008", "S-N-009", "S-H-006")
def test_pydantic_ai_calls_its_tool_and_answers_with_the_result(
    calling_server: ServerProcess, environment: Callable[[str], Environment]
) -> None:
    """Whole and streamed: the tool is given the model's arguments, and the model its result."""
    got = run_script(
        environment("pydantic-ai"), "pydantic_ai_tool.py", base_url(calling_server), MODEL
    )
    assert got["called"] == [["Plzeň", 2]] * 2
    assert got["outputs"] == ["The weather: sun in Plzeň."] * 2
    for kinds in got["kinds"]:
        assert [kind for kind in kinds if "tool" in kind] == ["tool-call", "tool-return"]


@pytest.mark.row("S-N-008", "S-N-009", "S-H-041")
@pytest.mark.case(59)
@pytest.mark.parametrize(("version", "way"), [("openai-newest", "sync"), ("openai-1", "async")])
def test_a_small_model_is_held_to_calls_that_validate(
    server: ServerProcess, environment: Callable[[str], Environment], version: str, way: str
) -> None:
    """A model that knows no tools calls the one it has to, whole and through the stream helper."""
    got = run_script(environment(version), "openai_tools.py", way, base_url(server), MODEL)
    functions = [tool["function"] for tool in got["tools"]]
    schemas = {function["name"]: function["parameters"] for function in functions}
    assert got["streamed"] == got["required"]
    for choice, names in (("required", set(schemas)), ("named", {"cancel"})):
        reply = got[choice]
        assert (reply["content"], reply["finish_reason"]) == (None, "tool_calls")
        ((name, arguments),) = reply["calls"]
        assert name in names
        Draft202012Validator(schemas[name]).validate(arguments)
    assert got["said"]
