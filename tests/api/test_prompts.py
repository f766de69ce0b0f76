"""Prompts and messages: every form there is, and the exact refusal of everything else."""

from typing import Any

import pytest

from tests.api.kit import (
    CHAT,
    COMPLETIONS,
    ENDPOINTS,
    MESSAGES,
    RENDERED,
    StartApi,
    check_error,
)
from trioserve.testing.fake_text import EOS_ID

KINDS = (
    "prompt must be a string, an array of strings, an array of token ids, or an array of arrays "
    "of token ids"
)
EMPTY = "Prompt cannot be empty"
VALUE, TYPE, MISSING = "invalid_value", "invalid_type", "missing_required_parameter"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Once", [b"Once"]),
        (" ", [b" "]),
        ("\x00", [b"\x00"]),
        ("č😀\u2028", ["č😀\u2028".encode()]),
        (["one", "two"], [b"one", b"two"]),
        (["same", "same"], [b"same", b"same"]),
        ([1, 2], [b"\x01\x02"]),
        ([1.0, 2], [b"\x01\x02"]),
        ([[1], [2, 3]], [b"\x01", b"\x02\x03"]),
        ([EOS_ID], [(EOS_ID,)]),  # an added token's id is an id like any other
        ("<eos>", [(EOS_ID,)]),
    ],
)
async def test_completions_take_four_forms_of_prompt(
    start: StartApi, prompt: Any, expected: list[Any]
) -> None:
    bench = await start("ok")
    answer = await bench.post(COMPLETIONS, prompt=prompt, max_tokens=2)
    assert answer.texts() == ["ok"] * len(expected)
    assert bench.prompts() == [tuple(token_ids) for token_ids in expected]
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] == sum(map(len, expected))
    assert usage["completion_tokens"] == 2 * len(expected)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "message", "code"),
    [
        (None, "prompt is required", MISSING),
        ("", EMPTY, VALUE),
        ([], EMPTY, VALUE),
        ([[]], EMPTY, VALUE),
        (["ok", ""], EMPTY, VALUE),
        ([[1], []], EMPTY, VALUE),
        (5, KINDS, TYPE),
        (True, KINDS, TYPE),
        ({"text": "a"}, KINDS, TYPE),
        ([1.5], KINDS, TYPE),
        ([True], KINDS, TYPE),
        ([None], KINDS, TYPE),
        ([{}], KINDS, TYPE),
        ([1, "a"], KINDS, TYPE),
        (["a", 1], KINDS, TYPE),
        ([[1], "x"], KINDS, TYPE),
        ([[1], ["x"]], KINDS, TYPE),
        ([[1], 2], KINDS, TYPE),
        ([[[1]]], KINDS, TYPE),
        ([-1], "prompt contains token id -1 outside [0, 256]", VALUE),
        ([257], "prompt contains token id 257 outside [0, 256]", VALUE),
        ([[1], [2, 300]], "prompt contains token id 300 outside [0, 256]", VALUE),
        ([2**63], f"prompt contains token id {2**63} outside [0, 256]", VALUE),
        ([1e30], f"prompt contains token id {int(1e30)} outside [0, 256]", VALUE),
        (["a"] * 2049, "prompt has 2049 entries, the limit is 2048", VALUE),
    ],
)
async def test_completions_refuse_any_other_prompt_whole(
    start: StartApi, prompt: Any, message: str, code: str, stream: bool
) -> None:
    """Cases 43 and 44: bad ids, and the empty prompt that killed an engine."""
    bench = await start("ok")
    answer = await bench.post(COMPLETIONS, prompt=prompt, stream=stream)
    check_error(answer, 400, f"Invalid request: {message}", code=code, param="prompt")
    assert not bench.runner.plans
    assert (await bench.post(COMPLETIONS)).texts() == ["ok"]
    bench.check_idle()


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("Once", b"Once"), ("<eos>", (EOS_ID,)), ([1, 2.0], b"\x01\x02")],
)
async def test_chat_takes_a_raw_prompt_without_its_template(
    start: StartApi, prompt: Any, expected: Any
) -> None:
    bench = await start("ok")
    answer = await bench.post(CHAT, messages=None, prompt=prompt)
    assert bench.prompts() == [tuple(expected)]
    assert answer.json()["object"] == "chat.completion"
    assert answer.json()["choices"][0]["message"] == {
        "role": "assistant",
        "content": "ok",
        "refusal": None,
    }


@pytest.mark.parametrize(
    ("fields", "message", "param", "code"),
    [
        ({"messages": None}, "either messages or prompt must be provided", "messages", MISSING),
        (
            {"prompt": "a", "messages": MESSAGES},
            "only one of messages or prompt may be provided",
            "prompt",
            VALUE,
        ),
        ({"messages": []}, "messages cannot be empty", "messages", VALUE),
        ({"messages": "Hi"}, "messages must be an array", "messages", TYPE),
        ({"messages": {}}, "messages must be an array", "messages", TYPE),
        *(
            ({"messages": None, "prompt": prompt}, "prompt must be a string", "prompt", TYPE)
            for prompt in (5, True, {}, ["a"], [[1]], [1, "a"], [1.5], [True])
        ),
        ({"messages": None, "prompt": ""}, EMPTY, "prompt", VALUE),
        ({"messages": None, "prompt": []}, EMPTY, "prompt", VALUE),
        (
            {"messages": None, "prompt": [999]},
            "prompt contains token id 999 outside [0, 256]",
            "prompt",
            VALUE,
        ),
    ],
)
async def test_chat_takes_exactly_one_of_messages_and_prompt(
    start: StartApi, fields: dict[str, Any], message: str, param: str, code: str
) -> None:
    bench = await start("ok")
    answer = await bench.post(CHAT, **fields)
    check_error(answer, 400, f"Invalid request: {message}", code=code, param=param)


PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


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
            {"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]},
            ".tool_calls is not supported by this server version; leave it out",
            ".tool_calls",
            "unsupported_parameter",
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


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_every_prompt_of_a_batch_gets_its_choices_in_order(
    start: StartApi, path: str
) -> None:
    bench = await start("a", "b", "c", "d", "e", "f")
    if path == CHAT:
        answer = await bench.post(path, n=3)
        assert answer.texts() == ["a", "b", "c"]
    else:
        answer = await bench.post(path, prompt=["one", "two"], n=3)
        assert answer.texts() == ["a", "b", "c", "d", "e", "f"]
    assert [choice["index"] for choice in answer.json()["choices"]] == list(
        range(len(answer.texts()))
    )
