"""The document at `/openapi.json`: true to the routes, to the settings and to its own standard."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio
from attrs import evolve
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.api.answers import check_error
from tests.api.kit import COMPLETIONS, StartApi
from tests.api.schema_kit import (
    CASES,
    CONFIG,
    DOCUMENT,
    check_envelope,
    document,
    open_both,
)
from trioserve.api.auth import ADMIN_PATHS, OPEN_PATHS
from trioserve.api.schema.limits import Limits


def test_the_document_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_every_schema_in_it_is_valid_json_schema() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


async def test_it_has_every_route_and_no_other(start: StartApi) -> None:
    bench = await start()
    served = {
        (method.lower(), re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule))
        for rule in bench.app.url_map.iter_rules()
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS")  # which come with every GET, and with every route
    }
    described = {
        (method, path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert described == served


async def test_the_server_answers_with_the_document_of_its_own_settings(
    nursery: trio.Nursery,
) -> None:
    bench = await open_both(nursery, max_logprobs=5, max_prompts_per_request=3)
    answer = await bench.api.get("/openapi.json")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    limits = Limits(max_logprobs=5, max_prompts=3, vocab_size=257)
    config = bench.api.engine.config
    assert answer.json() == document(config, limits)
    bodies = answer.json()["components"]["schemas"]
    assert bodies["CompletionBody"]["properties"]["logprobs"]["maximum"] == 5
    assert bodies["ChatBody"]["properties"]["top_logprobs"]["maximum"] == 5
    assert answer.json() != DOCUMENT


async def test_until_the_model_is_loaded_there_is_no_document(start: StartApi) -> None:
    bench = await start(is_loaded=False)
    for path in ("/openapi.json", "/docs"):
        answer = await bench.get(path)
        assert answer.status == 503
        assert answer.json()["error"]["code"] == "model_loading"


def test_every_declared_field_is_described() -> None:
    for name, case in CASES.items():
        for path in case.paths():
            if path == ("response_format", "type"):
                continue  # a constant inside an object that is described
            doc = case.field_schema(path).get("description", "")
            assert len(doc) > 10, (name, path)
            assert doc[0].isupper() or doc[0] == "`", doc
            assert doc.endswith("."), doc


@pytest.mark.parametrize("name", CASES)
async def test_every_example_is_served(nursery: trio.Nursery, name: str) -> None:
    case = CASES[name]
    bench = await open_both(nursery)
    answer = await bench.api.get("/openapi.json")
    operation = answer.json()["paths"][case.operation.path][case.operation.method]
    example = operation["requestBody"]["content"]["application/json"]["example"]
    assert case.is_valid(example)
    assert (await bench.send(case, orjson.dumps(example))).status == 200


async def test_a_refused_field_reads_as_the_document_says(nursery: trio.Nursery) -> None:
    """The rules between fields are listed, so that a reader of the document knows of them."""
    bench = await open_both(nursery)
    case = CASES["CompletionBody"]
    answer = await bench.send(case, orjson.dumps({**case.base, "n": 3, "best_of": 2}))
    message = check_envelope(answer)["message"].removeprefix("Invalid request: ")
    assert f"- `{message}`" in DOCUMENT["paths"][COMPLETIONS]["post"]["description"]


def test_without_a_key_nothing_says_that_it_needs_one() -> None:
    assert "securitySchemes" not in DOCUMENT["components"]
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert operation["security"] == []
            assert "401" not in operation["responses"]


@pytest.mark.parametrize(
    ("settings", "protected"),
    [
        ({"api_key": ("secret",)}, set(DOCUMENT["paths"]) - OPEN_PATHS),
        ({"admin_api_key": "root"}, set(ADMIN_PATHS)),
        (
            {"api_key": ("secret",), "admin_api_key": "root"},
            set(DOCUMENT["paths"]) - OPEN_PATHS,
        ),
    ],
)
async def test_what_needs_a_key_is_what_the_document_says(
    nursery: trio.Nursery, settings: dict[str, Any], protected: set[str]
) -> None:
    bench = await open_both(nursery, **settings)
    served = document(bench.api.engine.config)
    OpenAPIV31SpecValidator(served).validate()
    assert served["components"]["securitySchemes"]
    for path, methods in served["paths"].items():
        for method, operation in methods.items():
            assert bool(operation["security"]) == (path in protected), path
            assert ("401" in operation["responses"]) == (path in protected)
            answer = await bench.api.ask(method.upper(), path)
            assert (answer.status == 401) == (path in protected), path


async def test_the_document_and_its_page_need_the_key(start: StartApi) -> None:
    bench = await start(api_key=("secret",))
    for path in ("/openapi.json", "/docs"):
        message = "Missing API key; send it as the header 'Authorization: Bearer <key>'."
        check_error(await bench.get(path), 401, message, code="invalid_api_key")
        answer = await bench.ask("GET", path, headers={"Authorization": "Bearer secret"})
        assert answer.status == 200


def test_no_setting_that_is_secret_is_in_it() -> None:
    config = evolve(CONFIG, api_key=("hush-hush",), admin_api_key="top-secret")
    written = orjson.dumps(document(config))
    assert b"hush" not in written
    assert b"top-secret" not in written


def test_the_template_of_the_page_is_part_of_the_package() -> None:
    assert (files("trioserve.api.openapi") / "page.html.jinja").is_file()
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]
    assert data["trioserve.api.openapi"] == ["page.html.jinja"]
