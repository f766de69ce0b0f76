"""What a chat template is given: the messages in its form, variables, and an open last message."""

from typing import Any

import orjson
import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, MESSAGES, RENDERED, ApiBench, StartApi, body_for
from trioserve.testing.fake_text import byte_tokenizer

HI = {"role": "user", "content": "Hi"}
CHATTY = (
    "{% for m in messages %}{{ m.role }}={{ m.content | trim }};{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)
VARIABLES = (
    "{{ reasoning_effort | default('no effort') }}/{{ thinking | default('unset') }}/"
    "{{ enable_thinking | default('unset') }}/{{ extra | default('unset') }}"
)


def prompt_of(bench: ApiBench) -> str:
    """The text of the prompt that came last."""
    return bytes(bench.prompts()[-1]).decode()


async def ask(bench: ApiBench, template: str, **fields: Any) -> str:
    """What the template makes of a request."""
    bench.use_tokenizer(byte_tokenizer(template))
    answer = await bench.post(CHAT, **fields)
    assert answer.status == 200, answer.body
    return prompt_of(bench)


@pytest.mark.row("S-H-002", "S-H-003", "S-H-004", "S-H-005", "S-H-006", "S-N-007")
async def test_every_role_reaches_the_template(start: StartApi) -> None:
    bench = await start("ok")
    roles = ["system", "User", "assistant", "tool", "FUNCTION", "developer"]
    messages = [{"role": role, "content": role.lower()[0]} for role in roles]
    prompt = await ask(bench, CHATTY, messages=messages)
    # Without a role of its own, a developer is the system; a function is a tool.
    assert prompt == "system=s;user=u;assistant=a;tool=t;tool=f;system=d;>"
    knowing = CHATTY + "{% if false %}developer{% endif %}"
    assert (await ask(bench, knowing, messages=messages)).endswith("developer=d;>")


@pytest.mark.row("S-N-007")
@pytest.mark.case(58)
async def test_parts_are_a_list_for_templates_that_read_one_and_lines_for_others(
    start: StartApi,
) -> None:
    bench = await start("ok")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}]
    assert await ask(bench, CHATTY, messages=messages) == "user=a\nb;>"
    one = [{"role": "user", "content": "a\nb"}]
    assert await ask(bench, CHATTY, messages=one) == "user=a\nb;>"
    reading = (
        "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}"
    )
    assert await ask(bench, reading, messages=messages) == "<a><b>"


@pytest.mark.row("S-N-011")
@pytest.mark.parametrize(
    ("fields", "rendered"),
    [
        ({}, "no effort/unset/unset/unset"),
        ({"reasoning_effort": "high"}, "high/unset/unset/unset"),
        ({"reasoning_effort": None}, "no effort/unset/unset/unset"),
        ({"reasoning_effort": "none"}, "none/False/False/unset"),
        ({"chat_template_kwargs": {"extra": [1, "é"]}}, "no effort/unset/unset/[1, 'é']"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "no effort/unset/False/unset"),
        ({"chat_template_kwargs": {}}, "no effort/unset/unset/unset"),
        # The client's own word is the last one.
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            "none/False/True/unset",
        ),
        # Names that Jinja's own functions have.
        ({"chat_template_kwargs": {"self": 1, "range": 2}}, "no effort/unset/unset/unset"),
    ],
)
async def test_variables_reach_the_template(
    start: StartApi, fields: dict[str, Any], rendered: str
) -> None:
    bench = await start("ok")
    assert await ask(bench, VARIABLES, **fields) == rendered


@pytest.mark.row("S-N-011")
@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "documents"])
async def test_what_the_template_is_always_given_cannot_be_replaced(
    start: StartApi, name: str
) -> None:
    bench = await start("ok")
    answer = await bench.post(CHAT, chat_template_kwargs={name: []})
    message = f"Invalid request: chat_template_kwargs cannot set {name}"
    check_error(answer, 400, message, code="invalid_value", param="chat_template_kwargs")


@pytest.mark.row("S-N-011")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_open_message_is_gone_on_with_and_not_repeated(
    start: StartApi, stream: bool
) -> None:
    bench = await start(" Paris.")
    messages = [HI, {"role": "assistant", "content": "It is"}]
    answer = await bench.post(CHAT, messages=messages, continue_final_message=True, stream=stream)
    assert prompt_of(bench) == "user: Hi\nassistant: It is"
    assert answer.texts() == [" Paris."]
    # Without the switch the message is a turn like any other.
    await bench.post(CHAT, messages=messages)
    assert prompt_of(bench) == "user: Hi\nassistant: It is\nassistant: "
    await bench.post(CHAT, messages=messages, continue_final_message=False)
    assert prompt_of(bench) == "user: Hi\nassistant: It is\nassistant: "


async def test_an_open_message_in_parts_ends_with_its_last_part(start: StartApi) -> None:
    bench = await start("ok")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [HI, {"role": "assistant", "content": parts}]
    assert await ask(bench, CHATTY, messages=messages, continue_final_message=True) == (
        "user=Hi;assistant=a\nb"
    )


@pytest.mark.row("S-N-011")
@pytest.mark.parametrize("fields", [{"messages": MESSAGES}, {"messages": None, "prompt": "Once"}])
async def test_only_an_assistants_message_can_be_gone_on_with(
    start: StartApi, fields: dict[str, Any]
) -> None:
    bench = await start("ok")
    answer = await bench.post(CHAT, continue_final_message=True, **fields)
    message = (
        "Invalid request: continue_final_message requires the last message to be the assistant's"
    )
    check_error(answer, 400, message, code="invalid_value", param="continue_final_message")


async def test_a_template_that_hides_the_open_message_is_told(start: StartApi) -> None:
    bench = await start("ok")
    bench.use_tokenizer(byte_tokenizer("{{ messages[0].content }}"))
    messages = [HI, {"role": "assistant", "content": "It is"}]
    answer = await bench.post(CHAT, messages=messages, continue_final_message=True)
    message = (
        "Invalid request: chat template error: the template does not show the final message, so "
        "it cannot go on"
    )
    check_error(answer, 400, message, code="invalid_value", param="messages")


@pytest.mark.row("S-H-007")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["Once", list(b"Once")])
async def test_a_raw_prompt_sees_no_template_and_gets_a_chat_reply(
    start: StartApi, stream: bool, prompt: Any
) -> None:
    bench = await start("ok")
    answer = await bench.post(CHAT, messages=None, prompt=prompt, stream=stream)
    assert prompt_of(bench) == "Once"
    assert answer.texts() == ["ok"]
    first = answer.pieces()[0]
    assert (first["delta"] if stream else first["message"])["role"] == "assistant"


@pytest.mark.row("S-H-002")
async def test_messages_are_rendered_with_the_models_own_template(start: StartApi) -> None:
    bench = await start("ok")
    await bench.post(CHAT)
    assert prompt_of(bench) == RENDERED


@pytest.mark.row("S-H-009")
@pytest.mark.parametrize(
    ("setting", "fields", "num_tokens"),
    [
        ("16", {}, 16),
        ("16", {"max_tokens": 5}, 5),
        ("16", {"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ("30", {}, 30),
        ("context", {}, 100 - len(RENDERED)),
    ],
)
async def test_the_default_limit_is_the_servers(
    start: StartApi, setting: str, fields: dict[str, Any], num_tokens: int
) -> None:
    bench = await start("x" * 999, default_max_tokens=setting, max_model_len=100)
    answer = await bench.post(CHAT, **fields)
    assert answer.texts() == ["x" * num_tokens]
    assert answer.json()["choices"][0]["finish_reason"] == "length"


async def test_a_variable_may_be_nested_deeper_than_json_is_written(start: StartApi) -> None:
    bench = await start()
    fields = orjson.dumps(body_for(CHAT)).rstrip(b"}")
    nested = b"[" * 400 + b"]" * 400
    answer = await bench.post_raw(CHAT, b'%s,"chat_template_kwargs":{"x":%s}}' % (fields, nested))
    assert answer.status == 200
    bench.use_tokenizer(byte_tokenizer("{{ x | tojson | length }}"))
    answer = await bench.post_raw(CHAT, b'%s,"chat_template_kwargs":{"x":%s}}' % (fields, nested))
    assert answer.status == 200
    assert prompt_of(bench) == "800"
