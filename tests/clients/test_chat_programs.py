"""Programs that stand on the `openai` package: LangChain, and the `llm` command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.environments import Environment
from tests.clients.kit import MODEL, base_url, run, run_script
from trioserve.testing.server_process import ServerProcess

QUESTION = "What is the capital of France?"
PARIS = "The capital of France is Paris."


@pytest.mark.row("S-H-021", "S-H-029")
def test_langchain_streams_a_chat(
    server: ServerProcess, environment: Callable[[str], Environment]
) -> None:
    arguments = base_url(server), MODEL
    got = run_script(environment("langchain-openai"), "langchain_chat.py", *arguments)
    assert got["whole"] == PARIS
    assert got["finish_reason"] == "stop"
    assert len([piece for piece in got["pieces"] if piece]) > 3


@pytest.mark.row("S-H-021", "S-H-029")
def test_the_llm_command_streams_a_chat(
    server: ServerProcess, environment: Callable[[str], Environment], tmp_path: Path
) -> None:
    # JSON is YAML.
    model = {"model_id": "local", "model_name": MODEL, "api_base": base_url(server)}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([model]))
    llm = environment("llm").python, "-m", "llm"
    variables = {"LLM_USER_PATH": str(tmp_path)}
    options = "--model", "local", "--key", "EMPTY", "--log"
    limits = "--option", "temperature", "0", "--option", "max_tokens", "32"
    output = run(*llm, "prompt", QUESTION, *options, *limits, variables=variables)
    assert output.strip() == PARIS
    (logged,) = json.loads(run(*llm, "logs", "list", "--json", variables=variables))
    assert logged["response"] == PARIS
    assert "chunk" in logged["response_json"]["object"], "the answer was not streamed"
