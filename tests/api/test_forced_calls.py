"""`tool_choice` `required` or by name: a reply that is a call, whatever the model would say."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.api.answers import check_error
from tests.api.kit import CHAT, ApiBench, StartApi
from tests.api.tool_kit import CALL, CLOCK, QWEN, TOOLS, WEATHER, Message, messages, tokenizer
from tests.text import tool_templates

CHOOSE = {
    "type": "function",
    "function": {
        "name": "choose",
        "parameters": {
            "type": "object",
            "properties": {
                "colour": {"enum": ["red", "green"]},
                "size": {"type": "integer", "minimum": 1, "maximum": 99},
                "path": {"$ref": "#/$defs/path"},
            },
            "required": ["colour", "size", "path"],
            "additionalProperties": False,
            "$defs": {
                "path": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
            },
        },
    },
}
SAID = '[{"name": "get_weather", "parameters": {"city": "Brno"}}, {"name":"clock","parameters":{}}]'
MADE = [
    {"name": "get_weather", "arguments": '{"city": "Brno"}'},
    {"name": "clock", "arguments": "{}"},
]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


async def start_qwen(start: StartApi, *scripts: Any, **settings: Any) -> ApiBench:
    bench = await start(*scripts, max_model_len=2048, num_pages=2048, **settings)
    bench.use_tokenizer(QWEN)
    return bench


async def both(bench: ApiBench, **fields: Any) -> list[Message]:
    """The choices, the same streamed and not."""
    whole = messages(await bench.post(CHAT, **fields))
    assert messages(await bench.post(CHAT, stream=True, **fields)) == whole
    return whole


@pytest.mark.row("S-N-008", "S-N-009")
@pytest.mark.case(59)
async def test_required_calls_are_calls_streamed_or_not(start: StartApi) -> None:
    bench = await start_qwen(start, SAID)
    (message,) = await both(bench, tools=TOOLS, tool_choice="required")
    assert message == Message(None, "", MADE, ("tool_calls", None))
    (streamed,) = messages(await bench.post(CHAT, tools=TOOLS, tool_choice="required", stream=True))
    # A name, and arguments as they come: more pieces than there are calls.
    assert len(streamed.order) > 2 * len(MADE)
    assert "get_weather" in bytes(bench.prompts()[-1]).decode()


@pytest.mark.row("S-N-008")
async def test_each_choice_is_held_to_calls_of_its_own(start: StartApi) -> None:
    other = '[{"name": "clock", "parameters": {}}]'
    bench = await start_qwen(start, SAID, other)
    first, second = await both(bench, tools=TOOLS, tool_choice="required", n=2)
    assert (first.calls, second.calls) == (MADE, MADE[1:])
    assert first.finish == second.finish == ("tool_calls", None)
    bench.check_idle()


@pytest.mark.row("S-N-008")
@pytest.mark.case(59)
@pytest.mark.parametrize("text", ["No call.", CALL, "", '{"city": "Brno"}', "[1, 2]"])
@pytest.mark.parametrize("choice", ["required", named("choose")])
async def test_a_model_that_will_not_call_calls_all_the_same(
    start: StartApi, text: str, choice: Any
) -> None:
    bench = await start_qwen(start, text)
    fields = {"tools": [CHOOSE], "tool_choice": choice, "parallel_tool_calls": False}
    (message,) = await both(bench, **fields)
    assert message.content is None
    assert message.finish == ("tool_calls", None)
    (called,) = message.calls
    assert called["name"] == "choose"
    validator = Draft202012Validator(CHOOSE["function"]["parameters"])  # type: ignore[index]
    validator.validate(json.loads(called["arguments"]))


@pytest.mark.row("S-N-008")
async def test_a_tool_by_name_is_the_one_that_is_called_and_once(start: StartApi) -> None:
    bench = await start_qwen(start, SAID)
    (message,) = await both(bench, tools=TOOLS, tool_choice=named("clock"))
    (call,) = message.calls
    assert (call["name"], json.loads(call["arguments"])) == ("clock", {})
    assert message.finish == ("tool_calls", None)
    (message,) = await both(bench, tools=TOOLS, tool_choice=named("get_weather"))
    assert message == Message(None, "", [MADE[0]], ("tool_calls", None))
    (message,) = await both(bench, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert message == Message(None, "", [MADE[0]], ("tool_calls", None))


@pytest.mark.case(59)
async def test_a_forced_call_that_a_limit_cuts_off_ends_with_length(start: StartApi) -> None:
    bench = await start_qwen(start, SAID)
    for cut, calls, content in (
        (8, [], '[{"name"'),
        (SAID.index("Brno"), [{"name": "get_weather", "arguments": '{"city": "'}], None),
        (SAID.index(", {"), [MADE[0]], None),
        (SAID.index("clock"), [MADE[0]], None),
        (len(SAID) - 3, [MADE[0], {"name": "clock", "arguments": "{"}], None),
    ):
        (message,) = await both(bench, tools=TOOLS, tool_choice="required", max_tokens=cut)
        assert message == Message(content, "", calls, ("length", None)), cut


@pytest.mark.row("S-N-010")
@pytest.mark.parametrize("parser", ["qwen3", "deepseek-r1"])
@pytest.mark.parametrize("opening", ["", "<think>\n"])
async def test_a_forced_call_comes_behind_the_reasoning(
    start: StartApi, parser: str, opening: str
) -> None:
    bench = await start_qwen(start, f"{opening}Hm, {CALL}?</think>{SAID}", reasoning_parser=parser)
    (message,) = await both(bench, tools=TOOLS, tool_choice="required")
    assert message == Message(None, f"Hm, {CALL}?", MADE, ("tool_calls", None))


@pytest.mark.row("S-N-010")
@pytest.mark.parametrize("separate", [True, False])
async def test_structured_output_comes_behind_the_reasoning(
    start: StartApi, separate: bool
) -> None:
    bench = await start_qwen(start, "<think>Hm.</think>no, 42", reasoning_parser="qwen3")
    (message,) = await both(bench, regex=r"\d\d", separate_reasoning=separate)
    thought, content = ("Hm.", "") if separate else ("", "<think>Hm.</think>")
    assert message.reasoning == thought
    assert message.content is not None
    digits = message.content.removeprefix(content)
    assert len(digits) == 2
    assert digits.isdigit()
    assert message.finish == ("stop", None)


async def test_markers_that_are_special_tokens_begin_the_grammar_too(start: StartApi) -> None:
    bench = await start_qwen(start, (257, *b"Hm.", 258, *SAID.encode()), reasoning_parser="qwen3")
    bench.use_tokenizer(tokenizer(tool_templates.CHATML, "<think>", "</think>"))
    (message,) = await both(bench, tools=TOOLS, tool_choice="required")
    assert message == Message(None, "Hm.", MADE, ("tool_calls", None))


@pytest.mark.row("S-N-010")
async def test_a_prompt_that_closes_the_block_has_the_grammar_begin_at_once(
    start: StartApi,
) -> None:
    closing = tool_templates.CHATML + "{{- '<think>\\n\\n</think>\\n\\n' -}}"
    bench = await start_qwen(start, "no", reasoning_parser="qwen3")
    bench.use_tokenizer(tokenizer(closing))
    (message,) = await both(bench, regex=r"\d\d")
    assert message.content is not None
    assert message.content.isdigit()


@pytest.mark.row("S-H-036")
async def test_a_constraint_wins_over_calls_that_are_not_forced(start: StartApi) -> None:
    bench = await start_qwen(start, CALL)
    (message,) = await both(bench, tools=TOOLS, regex=r"<tool_call>[^$]*")
    assert message == Message(CALL, "", [], ("stop", 256))
    assert "get_weather" in bytes(bench.prompts()[-1]).decode()


BOTH = "structured output cannot be combined with a forced tool call"
UNTYPED = {"type": "function", "function": {"name": "f", "parameters": {"minProperties": 5}}}


@pytest.mark.row("S-N-008")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "detail", "param"),
    [
        ({"tools": TOOLS, "tool_choice": "required", "regex": "a"}, BOTH, "tool_choice"),
        (
            {
                "tools": TOOLS,
                "tool_choice": named("clock"),
                "response_format": {"type": "json_object"},
            },
            BOTH,
            "tool_choice",
        ),
    ],
)
async def test_what_cannot_be_forced_is_refused(
    start: StartApi, fields: dict[str, Any], detail: str, param: str, stream: bool
) -> None:
    bench = await start_qwen(start, "ok")
    answer = await bench.post(CHAT, stream=stream, **fields)
    message = f"Invalid request: {detail}"
    check_error(answer, 400, message, code="invalid_value", param=param)
    assert not bench.runner.plans


@pytest.mark.row("S-N-008")
async def test_a_schema_that_cannot_be_enforced_is_refused_by_its_keyword(
    start: StartApi,
) -> None:
    bench = await start_qwen(start, "ok")
    bad = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"properties": {"a": {"$ref": "https://example.com/a.json"}}},
        },
    }
    for choice, status in (("required", 400), (named("f"), 400), (named("clock"), 200)):
        answer = await bench.post(CHAT, tools=[CLOCK, bad], tool_choice=choice, max_tokens=4)
        assert answer.status == status, choice
        if status == 400:
            error = answer.json()["error"]
            assert error["param"] == "tools"
            assert error["message"].startswith("Invalid request: tools could not be compiled: ")
            assert "$ref at tools[1].function.parameters/properties/a " in error["message"]
    # The model may call it on its own: nothing is promised of the arguments then.
    assert (await bench.post(CHAT, tools=[WEATHER, bad], max_tokens=4)).status == 200
