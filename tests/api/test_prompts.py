"""Prompts and messages: every form there is, and the exact refusal of everything else."""

from typing import Any

import attrs
import pytest
from tokenizers.processors import TemplateProcessing

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, MESSAGES, RENDERED, StartApi
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer

KINDS = (
    "prompt must be a string, an array of strings, an array of token ids, or an array of arrays "
    "of token ids"
)
EMPTY = "Prompt cannot be empty"
VALUE, TYPE, MISSING = "invalid_value", "invalid_type", "missing_required_parameter"


@pytest.mark.row("S-C-003", "S-C-004", "S-C-005", "S-C-006", "S-C-057")
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


@pytest.mark.row("S-E-001")
@pytest.mark.case(43, 44)
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


@pytest.mark.row("S-H-007")
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


@pytest.mark.row("S-H-008")
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


@pytest.mark.row("S-C-004", "S-C-012")
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


async def test_a_text_gets_the_special_tokens_that_the_template_writes_itself(
    start: StartApi,
) -> None:
    bench = await start("ok")
    tokenizer = byte_tokenizer()
    tokenizer._backend.post_processor = TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", EOS_ID)]
    )
    bench.engine.batch.model = attrs.evolve(bench.engine.model, tokenizer=tokenizer)
    await bench.post(COMPLETIONS, prompt="a")
    await bench.post(COMPLETIONS, prompt=[97])
    await bench.post(CHAT, messages=None, prompt="a")
    await bench.post(CHAT, messages=None, prompt=[97])
    await bench.post(CHAT)
    text, token_ids = (EOS_ID, 97), (97,)
    assert bench.prompts() == [text, token_ids, text, token_ids, tuple(RENDERED.encode())]
