"""Tools on chat completions: what the model is shown, and what becomes of the calls it makes."""

import re
from typing import Any

import orjson
import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, MESSAGES, ApiBench, StartApi
from tests.api.tool_kit import (
    ARGUMENTS,
    CALL,
    CLOCK,
    CLOCK_CALL,
    QWEN,
    TOOLS,
    WEATHER,
    Message,
    messages,
    tokenizer,
)
from tests.text import tool_templates

MADE = {"name": "get_weather", "arguments": ARGUMENTS}
CLOCKED = {"name": "clock", "arguments": "{}"}


async def both(bench: ApiBench, **fields: Any) -> list[Message]:
    """The choices, the same streamed and not."""
    whole = messages(await bench.post(CHAT, **fields))
    assert messages(await bench.post(CHAT, stream=True, **fields)) == whole
    return whole


async def start_qwen(start: StartApi, *scripts: Any, **settings: Any) -> ApiBench:
    bench = await start(*scripts, max_model_len=2048, num_pages=1024, **settings)
    bench.use_tokenizer(QWEN)
    return bench


@pytest.mark.row("S-N-008", "S-N-009")
@pytest.mark.case(59)
async def test_a_call_is_a_call_and_no_text_streamed_or_not(start: StartApi) -> None:
    bench = await start_qwen(start, CALL)
    (message,) = await both(bench, tools=TOOLS)
    assert message == Message(None, "", [MADE], ("tool_calls", None))
    answer = await bench.post(CHAT, tools=TOOLS)
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert re.fullmatch(r"call_[0-9a-f]{24}", call["id"])
    assert call["type"] == "function"
    assert answer.json()["choices"][0]["message"]["content"] is None


@pytest.mark.row("S-N-008", "S-N-009")
async def test_words_and_several_calls(start: StartApi) -> None:
    bench = await start_qwen(start, f"I look.\n{CALL}\n{CLOCK_CALL}\n")
    (message,) = await both(bench, tools=TOOLS)
    assert message == Message("I look.", "", [MADE, CLOCKED], ("tool_calls", None))
    (streamed,) = messages(await bench.post(CHAT, tools=TOOLS, stream=True))
    assert len(set(streamed.ids)) == 2
    assert [kind for kind in streamed.order if kind == "tool_calls"] == ["tool_calls"] * 4
    assert streamed.order[0] == "content"
    assert streamed.order[-1] == "tool_calls"


@pytest.mark.row("S-N-008")
@pytest.mark.case(59)
@pytest.mark.parametrize(
    "text",
    [
        "No call.\n",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": }}</tool_call>',
        '{"name": "get_weather", "arguments": {}}',
        "<tool_call>",
    ],
)
async def test_what_is_no_call_of_a_declared_tool_is_content(start: StartApi, text: str) -> None:
    bench = await start_qwen(start, text)
    (message,) = await both(bench, tools=TOOLS)
    assert message == Message(text, "", [], ("stop", 256))


@pytest.mark.case(59)
async def test_a_call_that_a_limit_cuts_off_is_content_and_one_before_it_is_a_call(
    start: StartApi,
) -> None:
    bench = await start_qwen(start, CALL + CLOCK_CALL)
    cut = len(CALL.encode()) - 20
    (message,) = await both(bench, tools=TOOLS, max_tokens=cut)
    assert message == Message(CALL.encode()[:cut].decode(), "", [], ("length", None))
    (message,) = await both(bench, tools=TOOLS, max_tokens=len(CALL.encode()))
    assert message == Message(None, "", [MADE], ("length", None))
    (message,) = await both(bench, tools=TOOLS, max_tokens=len(CALL.encode()) + 30)
    assert message.calls == [MADE]
    assert message.finish == ("length", None)
    assert message.content == CLOCK_CALL[:30].rstrip()


@pytest.mark.row("S-N-008")
async def test_a_reply_with_tools_has_all_of_the_context(start: StartApi) -> None:
    text = "word " * 20
    bench = await start_qwen(start, text)
    (message,) = await both(bench, tools=TOOLS)
    assert message.content == text
    for fields in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
        (message,) = await both(bench, **fields)
        assert message == Message(text[:16], "", [], ("length", None))


@pytest.mark.row("S-N-008")
async def test_none_shows_no_tools_and_reads_no_calls(start: StartApi) -> None:
    bench = await start_qwen(start, CALL)
    for fields in ({"tools": TOOLS, "tool_choice": "none"}, {"tools": []}, {"tool_choice": "none"}):
        (message,) = await both(bench, max_tokens=500, **fields)
        assert message == Message(CALL, "", [], ("stop", 256))
        assert b"get_weather" not in bytes(bench.prompts()[-1])


@pytest.mark.row("S-N-008")
async def test_tools_are_shown_to_the_model_as_they_were_sent(start: StartApi) -> None:
    bench = await start_qwen(start, "ok")
    strict = {"type": "function", "function": {**CLOCK["function"], "strict": True, "x": [1]}}
    for fields in ({}, {"tool_choice": "auto"}, {"tool_choice": None}):
        await bench.post(CHAT, tools=[WEATHER, strict], **fields)
        prompt = bytes(bench.prompts()[-1]).decode()
        shown = [orjson.loads(line) for line in prompt.split("\n") if line.startswith('{"type')]
        assert shown == [WEATHER, {"type": "function", "function": {"name": "clock", "x": [1]}}]
        assert '{"type": "function", "function": {"name": "get_weather", "desc' in prompt


@pytest.mark.row("S-N-008")
async def test_without_parallel_calls_a_reply_ends_with_its_first_call(start: StartApi) -> None:
    bench = await start_qwen(start, f"A.\n{CALL}\n{CLOCK_CALL}")
    (message,) = await both(bench, tools=TOOLS, parallel_tool_calls=False)
    assert message == Message("A.", "", [MADE], ("tool_calls", None))
    answer = await bench.post(CHAT, tools=TOOLS, parallel_tool_calls=False)
    # The call's own last character is the last token that is generated.
    num_tokens = len(f"A.\n{CALL}".encode()) - len("\n</tool_call>")
    assert answer.json()["usage"]["completion_tokens"] == num_tokens
    (message,) = await both(bench, tools=TOOLS, parallel_tool_calls=False, min_tokens=150)
    assert message.calls == [MADE]
    assert bench.engine.statistics.generation_tokens is not None
    bench.check_idle()


async def test_each_choice_is_read_on_its_own(start: StartApi) -> None:
    bench = await start_qwen(start, CALL, "Words.", CLOCK_CALL)
    found = await both(bench, tools=TOOLS, n=3)
    assert [message.calls for message in found] == [[MADE], [], [CLOCKED]]
    assert [message.finish for message in found] == [
        ("tool_calls", None),
        ("stop", 256),
        ("tool_calls", None),
    ]
    found = await both(bench, tools=TOOLS, n=3, parallel_tool_calls=False)
    assert [message.calls for message in found] == [[MADE], [], [CLOCKED]]


async def test_a_stop_string_in_a_call_breaks_it_off(start: StartApi) -> None:
    bench = await start_qwen(start, CALL)
    (message,) = await both(bench, tools=TOOLS, stop=["Plzeň"])
    assert message == Message(CALL.partition("Plzeň")[0], "", [], ("stop", "Plzeň"))
    (message,) = await both(bench, tools=TOOLS, stop=["</tool_call>"])
    assert message == Message(None, "", [MADE], ("tool_calls", None))


@pytest.mark.row("S-N-009")
async def test_a_marker_that_is_a_special_token_is_seen_and_not_shown(start: StartApi) -> None:
    script = (257, *b'{"name": "clock", "parameters": {}}', 258)
    bench = await start_qwen(start, script)
    bench.use_tokenizer(tokenizer(tool_templates.LLAMA_3, "<|python_tag|>", "<other>"))
    (message,) = await both(bench, tools=TOOLS)
    assert message == Message(None, "", [CLOCKED], ("tool_calls", None))
    (message,) = await both(bench, max_tokens=500)
    assert message.content == '{"name": "clock", "parameters": {}}'


@pytest.mark.row("S-N-009")
@pytest.mark.parametrize(
    ("template", "setting", "text"),
    [
        ("QWEN", "auto", CLOCK_CALL),
        ("CHATML", "hermes", CLOCK_CALL),
        ("CHATML", "qwen", CLOCK_CALL),
        ("LLAMA_3", "auto", '{"name": "clock", "parameters": {}}'),
        ("CHATML", "llama3", '{"name": "clock", "parameters": {}}'),
        ("MISTRAL", "auto", '[TOOL_CALLS] [{"name": "clock", "arguments": {}}]'),
        ("QWEN", "json", '[{"name": "clock", "parameters": {}}]'),
    ],
)
async def test_the_format_is_the_templates_or_the_one_that_is_set(
    start: StartApi, template: str, setting: str, text: str
) -> None:
    bench = await start_qwen(start, text, tool_call_parser=setting)
    bench.use_tokenizer(tokenizer(getattr(tool_templates, template)))
    (message,) = await both(bench, tools=TOOLS)
    assert message == Message(None, "", [CLOCKED], ("tool_calls", None))
    config = (await bench.get("/get_model_info")).json()["server_config"]
    names = {"QWEN": "hermes", "LLAMA_3": "llama3", "MISTRAL": "mistral"}
    expected = {"auto": names.get(template), "qwen": "qwen25"}.get(setting, setting)
    assert config["tool_call_parser"] == expected
    if expected == "mistral":
        answer = await bench.post(CHAT, tools=TOOLS)
        (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
        assert re.fullmatch(r"[0-9A-Za-z]{9}", call["id"])


@pytest.mark.parametrize(("template", "setting"), [("CHATML", "auto"), ("QWEN", "none")])
async def test_where_no_format_is_known_the_text_stays_as_it_is(
    start: StartApi, template: str, setting: str
) -> None:
    bench = await start_qwen(start, CALL, tool_call_parser=setting)
    bench.use_tokenizer(tokenizer(getattr(tool_templates, template)))
    (message,) = await both(bench, tools=TOOLS)
    assert message == Message(CALL, "", [], ("stop", 256))


@pytest.mark.row("S-N-008", "S-H-006")
async def test_a_call_and_its_result_come_back_to_the_template(start: StartApi) -> None:
    bench = await start_qwen(start, CALL, max_running_requests=4)
    answer = await bench.post(CHAT, tools=TOOLS)
    made = answer.json()["choices"][0]["message"]
    (call,) = made["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
    answer = await bench.post(CHAT, tools=TOOLS, messages=[*MESSAGES, made, result])
    assert answer.status == 200, answer.body
    prompt = bytes(bench.prompts()[-1]).decode()
    assert prompt.endswith(
        f"<|im_start|>assistant\n{CALL}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    tokenized = await bench.post(
        "/tokenize", messages=[*MESSAGES, made, result], tools=TOOLS, model=None
    )
    assert tokenized.json()["tokens"] == list(bench.prompts()[-1])


@pytest.mark.row("S-N-009")
async def test_every_token_of_a_call_has_its_logprob_once(start: StartApi) -> None:
    text = f"I look.\n{CALL}\n{CLOCK_CALL} "
    bench = await start_qwen(start, text)
    fields = {"tools": TOOLS, "logprobs": True, "top_logprobs": 1}
    whole = (await bench.post(CHAT, **fields)).json()["choices"][0]["logprobs"]["content"]
    assert len(whole) == len(text.encode()) + 1
    pieces = (await bench.post(CHAT, stream=True, **fields)).pieces()
    streamed = [entry for piece in pieces for entry in (piece["logprobs"] or {}).get("content", [])]
    assert streamed == whole
    # The chunk of a call's name comes with the tokens that led to it.
    first = next(piece for piece in pieces if "tool_calls" in piece["delta"])
    shown = "".join(entry["token"] for entry in first["logprobs"]["content"])
    assert shown.lstrip().startswith("<tool_call>")
    assert shown.endswith("}")


def _tools(*functions: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": each} for each in functions]}


def _named(name: Any) -> dict[str, Any]:
    return {"tool_choice": {"type": "function", "function": {"name": name}}, "tools": TOOLS}


PARAMETERS = "tools[0].function.parameters is not a valid JSON schema"


@pytest.mark.row("S-N-008")
@pytest.mark.parametrize(
    ("fields", "detail", "param", "code"),
    [
        ({"tools": {}}, "tools must be an array", "tools", "invalid_type"),
        ({"tools": [5]}, "tools[0] must be an object", "tools[0]", "invalid_type"),
        (
            {"tools": [*TOOLS, {"type": "retrieval"}]},
            "tools[2].type must be function",
            "tools[2].type",
            "invalid_value",
        ),
        (
            _tools({"description": "d"}),
            "tools[0].function.name is required",
            "tools[0].function.name",
            "missing_required_parameter",
        ),
        (
            _tools({"name": "f", "description": 5}),
            "tools[0].function.description must be a string",
            "tools[0].function.description",
            "invalid_type",
        ),
        (
            _tools({"name": "f", "strict": "yes"}),
            "tools[0].function.strict must be a boolean",
            "tools[0].function.strict",
            "invalid_type",
        ),
        (
            _tools({"name": "f", "parameters": []}),
            "tools[0].function.parameters must be an object",
            "tools[0].function.parameters",
            "invalid_type",
        ),
        (
            _tools({"name": "f", "parameters": {"type": "strin"}}),
            f"{PARAMETERS}: type must be a type of JSON or an array of them",
            "tools[0].function.parameters",
            "invalid_value",
        ),
        (
            _tools({"name": "f", "parameters": {"type": "array"}}),
            f"{PARAMETERS}: type must be object",
            "tools[0].function.parameters",
            "invalid_value",
        ),
        (
            _tools({"name": "f", "parameters": {"properties": {"a": 5}}}),
            f"{PARAMETERS}: properties.a must be an object or a boolean",
            "tools[0].function.parameters",
            "invalid_value",
        ),
        (
            {"tool_choice": "auto"},
            "tools cannot be empty if tool_choice is set",
            "tool_choice",
            "invalid_value",
        ),
        (
            {"tool_choice": "required", "tools": []},
            "tools cannot be empty if tool_choice is set",
            "tool_choice",
            "invalid_value",
        ),
        (
            {**_named("f"), "tools": None},
            "tools cannot be empty if tool_choice is set",
            "tool_choice",
            "invalid_value",
        ),
        (_named("nope"), "tool 'nope' not found in tools", "tool_choice", "invalid_value"),
        (
            _named("x" * 100),
            f"tool '{'x' * 64}…' not found in tools",
            "tool_choice",
            "invalid_value",
        ),
        (
            {"tool_choice": "any", "tools": TOOLS},
            "tool_choice must be one of none, auto, required, or an object",
            "tool_choice",
            "invalid_value",
        ),
        (
            {"tool_choice": 5, "tools": TOOLS},
            "tool_choice must be a string or an object",
            "tool_choice",
            "invalid_type",
        ),
        (
            _named(None),
            "tool_choice.function.name is required",
            "tool_choice",
            "missing_required_parameter",
        ),
        (
            {"tool_choice": {"type": "allowed_tools"}, "tools": TOOLS},
            "tool_choice is not supported by this server version; leave it out",
            "tool_choice",
            "unsupported_parameter",
        ),
        (
            {"tools": TOOLS, "prompt": "a", "messages": None},
            "tools cannot be used with prompt",
            "tools",
            "invalid_value",
        ),
        (
            {"tools": TOOLS, "parallel_tool_calls": 0},
            "parallel_tool_calls must be a boolean",
            "parallel_tool_calls",
            "invalid_type",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_is_refused_before_anything_is_sent(
    start: StartApi, fields: dict[str, Any], detail: str, param: str, code: str, stream: bool
) -> None:
    bench = await start_qwen(start, "ok")
    answer = await bench.post(CHAT, stream=stream, **fields)
    check_error(answer, 400, f"Invalid request: {detail}", code=code, param=param)
    assert not bench.runner.plans
