"""What the server answers, held against the schemas that the document gives for it."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import trio
from jsonschema import Draft202012Validator

from tests.api.answers import Answer
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, MODEL, StartApi
from tests.api.schema_kit import (
    CASES,
    DOCUMENT,
    EMBEDDER,
    SchemaBench,
    open_both,
)
from tests.api.tool_kit import CALL, QWEN, TOOLS, messages
from trioserve.api.openapi.operations import OPERATIONS

OPERATIONS_OF = {(op.method, op.path): op for op in OPERATIONS}


def _closed(schema: Any) -> Any:
    """A schema whose objects have nothing but what it names, to find what is not described."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in schema and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
    return closed


_COMPONENTS = {
    name: _closed(schema)
    for name, schema in DOCUMENT["components"]["schemas"].items()
    if not name.endswith("Body")
}


def _check(value: Any, reply: str) -> None:
    root = {"$ref": f"#/components/schemas/{reply}", "components": {"schemas": _COMPONENTS}}
    Draft202012Validator(root).validate(value)


_LOGPROBS: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"logprobs": 2, "echo": True},
    CHAT: {"logprobs": True, "top_logprobs": 2},
}
_STREAM_OPTIONS = [
    {"stream_options": {"include_usage": usage, "continuous_usage_stats": continuous}}
    for usage in (False, True)
    for continuous in (False, True)
]


def _variations(path: str) -> Iterator[dict[str, Any]]:
    cached = {"return_cached_tokens_details": True}
    for more in (
        *({}, _LOGPROBS[path], {"n": 2, "stop": "a"}),
        *({"return_hidden_states": True}, cached),
    ):
        yield more
        yield {**more, "stream": True}
    for options in _STREAM_OPTIONS:
        yield {**options, "stream": True, "n": 2}


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_replies_and_chunks_are_what_the_document_says(start: StartApi, path: str) -> None:
    bench = await start("a man a plan")
    operation = OPERATIONS_OF["post", path]
    for fields in _variations(path):
        answer = await bench.post(path, **fields)
        assert answer.status == 200, (fields, answer.body)
        if "stream" not in fields:
            assert operation.reply is not None
            _check(answer.json(), operation.reply)
            continue
        assert operation.event is not None
        assert answer.events()
        for event in answer.events():
            _check(event, operation.event)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"text": "Once"},
        {"text": ["Once", "Twice"], "sampling_params": {"n": 2}},
        {
            "input_ids": [1, 2],
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 2,
            "token_ids_logprob": [5],
            "return_text_in_logprobs": True,
        },
        {"text": "Once", "return_hidden_states": True},
        {"text": ["Once", "Twice"], "return_cached_tokens_details": True},
        {"text": "Once", "sampling_params": {"stop_token_ids": list(range(257))}},
    ],
)
async def test_native_replies_and_events_are_what_the_document_says(
    nursery: trio.Nursery, stream: bool, fields: dict[str, Any]
) -> None:
    bench = await open_both(nursery)
    case = CASES["NativeGenerateBody"]
    answer = await bench.send(case, orjson.dumps({**fields, "stream": stream}))
    assert answer.status == 200, answer.body
    if stream:
        for event in answer.events():
            _check(event, "NativeEvent")
    else:
        _check(answer.json(), "NativeReply")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("EmbeddingBody", {"model": EMBEDDER, "input": ["a", "b"]}),
        ("EmbeddingBody", {"model": EMBEDDER, "input": "a", "encoding_format": "base64"}),
        ("TokenizeBody", {"prompt": "a"}),
        ("TokenizeBody", {"prompt": ["a", "b"]}),
        ("DetokenizeBody", {"tokens": [1]}),
        ("DetokenizeBody", {"tokens": [[1], [2]]}),
    ],
)
async def test_other_answers_to_bodies_are_what_the_document_says(
    nursery: trio.Nursery, name: str, fields: dict[str, Any]
) -> None:
    bench = await open_both(nursery)
    case = CASES[name]
    answer = await bench.send(case, orjson.dumps(fields))
    assert answer.status == 200, answer.body
    assert case.operation.reply is not None
    _check(answer.json(), case.operation.reply)


_GETS = [op for op in OPERATIONS if op.method == "get"]


@pytest.mark.parametrize("operation", _GETS, ids=lambda op: op.path)
async def test_what_can_be_got_is_what_the_document_says(
    nursery: trio.Nursery, operation: Any
) -> None:
    bench = await open_both(nursery)
    path = operation.path.replace("{model_id}", MODEL)
    answer = await bench.api.get(path)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].split(";")[0] == operation.reply_type
    if operation.reply not in ("Text", "Document"):
        _check(answer.json(), operation.reply)


async def _provoke(bench: SchemaBench) -> dict[int, Answer]:
    case = CASES["CompletionBody"]
    return {
        400: await bench.send(case, b"{}"),
        404: await bench.send(case, b'{"model": "no-such", "prompt": "a"}'),
        405: await bench.api.ask("DELETE", COMPLETIONS),
        413: await bench.send(case, b" " * 1001),
        401: await bench.api.ask("POST", COMPLETIONS, headers={"Authorization": "no"}),
    }


async def test_errors_are_what_the_document_says(nursery: trio.Nursery) -> None:
    bench = await open_both(nursery, max_request_bytes=1000)
    with_key = await open_both(nursery, max_request_bytes=1000, api_key=("secret",))
    answers = {**await _provoke(bench), 401: (await _provoke(with_key))[401]}
    for status, answer in answers.items():
        assert answer.status == status
        _check(answer.json(), "Error")
    responses = DOCUMENT["paths"][COMPLETIONS]["post"]["responses"]
    assert {int(status) for status in responses} == {200, 400, 404, 408, 413, 500, 503}


@pytest.mark.parametrize("stream", [False, True])
async def test_replies_with_calls_and_reasoning_are_what_the_document_says(
    start: StartApi, stream: bool
) -> None:
    script = f"<think>Hm.</think>I look. {CALL}"
    bench = await start(script, reasoning_parser="qwen3", max_model_len=2048, num_pages=1024)
    bench.use_tokenizer(QWEN)
    operation = OPERATIONS_OF["post", CHAT]
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = await bench.post(CHAT, tools=TOOLS, logprobs=True, stream=stream, **options)
    (message,) = messages(answer)
    assert (message.reasoning, message.content, len(message.calls)) == ("Hm.", "I look.", 1)
    if not stream:
        assert operation.reply is not None
        _check(answer.json(), operation.reply)
        return
    assert operation.event is not None
    for event in answer.events():
        _check(event, operation.event)
