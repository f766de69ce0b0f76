"""Calls and their results in a conversation, as templates of the known families are given them."""

import json
from typing import Any

import pytest

from tests.text import tool_templates
from tests.text.reply_kit import read
from trioserve.text.chat_template import ChatTemplate, ChatTemplateError
from trioserve.text.template_calls import CallForm
from trioserve.text.tool_calls.formats import FORMATS, detect_format
from trioserve.text.tool_calls.wire_format import WireParser

USER = {"role": "user", "content": "Weather?"}
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
ARGUMENTS = {"city": "Plzeň", "days": [1, 2.5, None], "quote": '"\\'}


def conversation(call_id: str = "call12345", **fields: Any) -> list[dict[str, Any]]:
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": "get_weather", "arguments": json.dumps(ARGUMENTS), **fields},
    }
    return [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": '"sun"', "tool_call_id": call_id},
    ]


def template(name: str) -> ChatTemplate:
    return ChatTemplate(getattr(tool_templates, name), {"eos_token": "</s>"})


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("QWEN", CallForm(has_objects=True, has_null_content=True)),
        ("HERMES", CallForm(has_objects=True, has_null_content=True)),
        ("LLAMA_3", CallForm(has_objects=True, has_null_content=False)),
        ("MISTRAL", CallForm(has_objects=True, has_null_content=True)),
        ("DEEPSEEK", CallForm(has_objects=False, has_null_content=True)),
        ("CHATML", CallForm(has_objects=True, has_null_content=False)),
    ],
)
def test_the_form_that_a_template_takes_is_found(name: str, form: CallForm) -> None:
    assert template(name)._call_form == form


@pytest.mark.row("S-N-008")
@pytest.mark.parametrize(
    ("name", "parser"),
    [("QWEN", "hermes"), ("HERMES", "hermes"), ("LLAMA_3", "llama3"), ("MISTRAL", "mistral")],
)
def test_what_the_template_writes_of_a_call_the_parser_reads(name: str, parser: str) -> None:
    """Round trip: the model is shown calls in the form in which it makes them."""
    found = detect_format(getattr(tool_templates, name))
    assert found is FORMATS[parser]
    text = template(name).render(conversation(), tools=[TOOL], add_generation_prompt=False)
    call = text[text.rindex("{", 0, text.index("get_weather", text.index("Weather?"))) :]
    if name != "LLAMA_3":
        call = text[text.index(found.wire.opening or "", text.index("Weather?")) :]
    got = read(WireParser(found.wire, frozenset({"get_weather"})), call)
    ((called, arguments),) = got.calls
    assert (called, json.loads(arguments)) == ("get_weather", ARGUMENTS)
    assert "sun" in text
    assert "None" not in text


def test_tools_are_shown_only_where_there_are_some() -> None:
    for name in ("QWEN", "HERMES", "LLAMA_3", "MISTRAL"):
        assert "get_weather" in template(name).render([USER], tools=[TOOL])
        assert "ipython" not in template(name).render([USER])
        assert template(name).render([USER], tools=[]) == template(name).render([USER])


def test_arguments_of_a_template_that_wants_text_are_the_clients_own() -> None:
    written = '{"a":1,  "a":2}'
    messages = conversation(arguments=written)[:2]
    assert written in template("DEEPSEEK").render(messages)


@pytest.mark.parametrize(
    ("written", "shown"), [("", "{}"), (" ", "{}"), ("{", '"{"'), ("[1]", '"[1]"')]
)
def test_arguments_that_are_no_object_are_shown_as_well_as_can_be(written: str, shown: str) -> None:
    messages = conversation(arguments=written)
    assert f'"arguments": {shown}' in template("QWEN").render(messages)


def test_an_answer_gets_the_name_of_the_tool_that_was_called() -> None:
    text = template("HERMES").render(conversation())
    assert 'get_weather: "\\"sun\\""' in text
    answer = {"role": "tool", "content": "x", "tool_call_id": "other"}
    with pytest.raises(ChatTemplateError, match="needs the name"):
        template("HERMES").render([*conversation(), answer])
    assert "given: " in template("HERMES").render([*conversation(), {**answer, "name": "given"}])


def test_words_beside_a_call_are_kept_and_a_template_without_tools_still_renders() -> None:
    messages = conversation()
    messages[1] = {**messages[1], "content": "I look."}
    assert "assistant\nI look.\n<tool_call>" in template("QWEN").render(messages)
    assert "assistant\nI look.<|im_end|>" in template("CHATML").render(messages)
    assert "assistant\n<|im_end|>" in template("CHATML").render(conversation())


def test_a_conversation_is_not_changed() -> None:
    messages = conversation()
    before = json.dumps(messages)
    template("QWEN").render(messages)
    assert json.dumps(messages) == before


def test_what_the_template_refuses_is_its_own_error() -> None:
    with pytest.raises(ChatTemplateError, match="nine characters"):
        template("MISTRAL").render(conversation(call_id="call_1"))
    messages = conversation()
    messages[1]["tool_calls"] *= 2
    with pytest.raises(ChatTemplateError, match="one call"):
        template("LLAMA_3").render(messages)
