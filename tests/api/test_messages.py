"""Messages: every role and form of content there is, and the exact refusal of everything else."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, MESSAGES, RENDERED, StartApi

VALUE, TYPE = "invalid_value", "invalid_type"
PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.row("S-H-002", "S-H-003", "S-H-004", "S-H-005", "S-H-006", "S-N-007")
@pytest.mark.case(58)
@pytest.mark.parametrize(
    ("messages", "rendered"),
    [
        (MESSAGES, RENDERED),
        ([{"role": "USER", "content": "Hi"}], RENDERED),
        ([{"role": "system", "content": ""}], "system: \nassistant: "),
        ([{"role": "developer", "content": "x"}], "system: x\nassistant: "),
        ([{"role": "function", "content": "x", "name": "f"}], "tool: x\nassistant: "),
        ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "tool: x\nassistant: "),
        ([{"role": "user", "content": PARTS}], "user: a\nb\nassistant: "),
        ([{"role": "user", "content": "a\nb"}], "user: a\nb\nassistant: "),
        ([{"role": "user", "content": []}], "user: \nassistant: "),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]}],
            "assistant: No\nassistant: ",
        ),
        # Rendered as it is (D20), and nulls are as good as nothing.
        (
            [{"role": "assistant", "content": "Yes", "tool_calls": None, "name": None}],
            "assistant: Yes\nassistant: ",
        ),
        ([{"role": "user", "content": "\x00🙂", "unknown": 1}], "user: \x00🙂\nassistant: "),
    ],
)
async def test_messages_are_rendered_by_the_template(
    start: StartApi, messages: list[Any], rendered: str
) -> None:
    """Case 58: content as an array of parts gives the ids of the equivalent string."""
    bench = await start("ok")
    answer = await bench.post(CHAT, messages=messages)
    assert answer.status == 200, answer.body
    assert bench.prompts() == [tuple(rendered.encode())]


ROLES = "role must be one of system, developer, user, assistant, tool"
CONTENT = "content must be a string or an array of content parts"


@pytest.mark.parametrize(
    ("message", "detail", "where", "code"),
    [
        ("Hi", " must be an object", "", TYPE),
        (None, " must be an object", "", TYPE),
        ({}, f".{ROLES}", ".role", VALUE),
        ({"role": "bot", "content": "a"}, f".{ROLES}", ".role", VALUE),
        ({"role": 5, "content": "a"}, f".{ROLES}", ".role", VALUE),
        ({"role": ["user"], "content": "a"}, f".{ROLES}", ".role", VALUE),
        ({"role": "user"}, f".{CONTENT}", ".content", TYPE),
        ({"role": "user", "content": None}, f".{CONTENT}", ".content", TYPE),
        ({"role": "user", "content": 5}, f".{CONTENT}", ".content", TYPE),
        ({"role": "user", "content": {"text": "a"}}, f".{CONTENT}", ".content", TYPE),
        ({"role": "assistant", "content": None}, f".{CONTENT}", ".content", TYPE),
        ({"role": "assistant", "tool_calls": []}, f".{CONTENT}", ".content", TYPE),
        ({"role": "user", "content": "a", "name": 5}, ".name must be a string", ".name", TYPE),
        (
            {"role": "tool", "content": "a", "tool_call_id": 5},
            ".tool_call_id must be a string",
            ".tool_call_id",
            TYPE,
        ),
        (
            {"role": "assistant", "content": "a", "reasoning_content": []},
            ".reasoning_content must be a string",
            ".reasoning_content",
            TYPE,
        ),
        (
            {"role": "user", "content": "a", "tool_calls": {}},
            ".tool_calls must be an array",
            ".tool_calls",
            TYPE,
        ),
        (
            {"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]},
            ".tool_calls[0].function must be an object",
            ".tool_calls[0].function",
            TYPE,
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]},
            ".tool_calls[0].function.name must be a string",
            ".tool_calls[0].function.name",
            TYPE,
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": 5, "function": {"name": "f", "arguments": "{}"}}],
            },
            ".tool_calls[0].id must be a string",
            ".tool_calls[0].id",
            TYPE,
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            ".tool_calls[0].function.arguments must be a string",
            ".tool_calls[0].function.arguments",
            TYPE,
        ),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {}}]},
            ".tool_calls[0].type must be function",
            ".tool_calls[0].type",
            VALUE,
        ),
        (
            {"role": "user", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
            f".{CONTENT}",
            ".content",
            TYPE,
        ),
    ],
)
async def test_a_wrong_message_is_named(
    start: StartApi, message: Any, detail: str, where: str, code: str
) -> None:
    bench = await start("ok")
    answer = await bench.post(CHAT, messages=[*MESSAGES, message])
    check_error(
        answer,
        400,
        f"Invalid request: messages[1]{detail}",
        code=code,
        param=f"messages[1]{where}",
    )


@pytest.mark.parametrize(
    ("part", "detail", "code"),
    [
        *(
            (
                {"type": kind, kind: {}},
                f": {kind} input is not supported by this model",
                "unsupported_parameter",
            )
            for kind in ("image_url", "input_audio", "video_url", "file")
        ),
        ({"type": "poem", "poem": "a"}, ": unknown content part type poem", VALUE),
        ({"type": "refusal", "refusal": "a"}, ": unknown content part type refusal", VALUE),
        ({"type": 5}, ": unknown content part type missing", VALUE),
        ({"text": "a"}, ": unknown content part type missing", VALUE),
        ("a", ": unknown content part type missing", VALUE),
    ],
)
async def test_a_content_part_that_is_not_text_is_refused(
    start: StartApi, part: Any, detail: str, code: str
) -> None:
    bench = await start("ok")
    content = [*PARTS, part]
    answer = await bench.post(CHAT, messages=[{"role": "user", "content": content}])
    where = "messages[0].content[2]"
    check_error(answer, 400, f"Invalid request: {where}{detail}", code=code, param=where)


async def test_a_text_part_without_a_text_is_refused(start: StartApi) -> None:
    bench = await start("ok")
    for part in ({"type": "text"}, {"type": "text", "text": 5}):
        answer = await bench.post(CHAT, messages=[{"role": "user", "content": [part]}])
        where = "messages[0].content[0].text"
        message = f"Invalid request: {where} must be a string"
        check_error(answer, 400, message, code=TYPE, param=where)
