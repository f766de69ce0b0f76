"""Structured output through clients that ask for it in their own ways."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.clients.environments import OPENAI_CLIENTS, Environment
from tests.clients.kit import MODEL, base_url, run, run_script
from trioserve.testing.server_process import ServerProcess

USER_INFO = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "email": {"type": "string"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.row("S-X-03", "S-X-07", "S-X-08", "S-H-031", "S-H-032", "S-H-041", "S-C-020")
@pytest.mark.parametrize(("version", "way"), OPENAI_CLIENTS)
def test_openai_gets_what_it_asks_for(
    server: ServerProcess, environment: Callable[[str], Environment], version: str, way: str
) -> None:
    """The documented examples, and `.parse()` with classes of pydantic, for two choices."""
    got = run_script(environment(version), "structured.py", way, base_url(server), MODEL)
    assert got["keyword"] == "TypeError"
    if got["json_object"]["finish_reason"] == "stop":
        assert isinstance(json.loads(got["json_object"]["text"]), dict)
    else:
        assert got["json_object"]["finish_reason"] == "length"
        assert got["json_object"]["text"].startswith("{")
    assert_user_info(got["user_info"])
    assert got["phone"]["finish_reason"] == "stop"
    assert re.fullmatch(r"\d{3}-\d{3}-\d{4}", got["phone"]["message"]["content"])
    assert len(got["trains"]) == 2
    for train in got["trains"]:
        assert train["wheels"] in (4, 6, 8)
        assert train["engine"] is None or 1 <= train["engine"]["power_kw"] <= 9999


@pytest.mark.row("S-X-03")
def test_curl_asks_for_a_json_object_in_the_body(server: ServerProcess) -> None:
    body = {
        "model": MODEL,
        "prompt": "Generate a JSON object with name and age:",
        "max_tokens": 128,
        "response_format": {"type": "json_object"},
    }
    header = "Content-Type: application/json"
    url = f"{base_url(server)}/completions"
    (choice,) = json.loads(run("curl", "-s", url, "-H", header, "-d", json.dumps(body)))["choices"]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["text"]), dict)
    else:
        assert choice["finish_reason"] == "length"


def test_instructor_extracts_a_class(
    server: ServerProcess, environment: Callable[[str], Environment]
) -> None:
    got = run_script(environment("instructor"), "instructor_extract.py", base_url(server), MODEL)
    assert json.loads(got["raw"]) == got["person"]
    assert 0 <= got["person"]["age"] <= 130
    assert got["person"]["job"] in ("doctor", "teacher", "other")


def assert_user_info(choice: dict[str, Any]) -> None:
    assert choice["finish_reason"] == "stop"
    Draft202012Validator(USER_INFO).validate(json.loads(choice["message"]["content"]))
