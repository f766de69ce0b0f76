"""Streams chunk by chunk, as section 5.4 of the contract writes them, and how they are framed."""

from typing import Any

import orjson
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.api.answers import Answer, text_of
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, PROMPT, RENDERED, StartApi
from trioserve.testing.fake_text import EOS_ID

ROLE = {"role": "assistant", "content": ""}
USAGE = {"include_usage": True}
CONTINUOUS = {"continuous_usage_stats": True}


def usage(num_prompt_tokens: int, num_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt_tokens + num_tokens,
        "prompt_tokens_details": None,
    }


def choices(answer: Answer) -> list[dict[str, Any]]:
    return [choice for chunk in answer.events() for choice in chunk["choices"]]


@pytest.mark.row("S-C-025", "S-C-046", "S-C-067", "S-C-068", "S-G-003")
async def test_a_completion_stream_is_exactly_this(start: StartApi) -> None:
    bench = await start("ab")
    answer = await bench.post(COMPLETIONS, stream=True)
    head = {key: answer.events()[0][key] for key in ("id", "object", "created", "model")}
    text = {"index": 0, "logprobs": None, "finish_reason": None}
    assert answer.events() == [
        {**head, "choices": [{**text, "text": "a"}]},
        {**head, "choices": [{**text, "text": "b"}]},
        {
            **head,
            "choices": [{**text, "text": "", "finish_reason": "stop", "matched_stop": EOS_ID}],
            "usage": usage(len(PROMPT), 3),
        },
    ]
    assert head["object"] == "text_completion"
    assert head["model"] == "org/fake"
    prefix, _, digits = head["id"].partition("-")
    assert (prefix, len(digits)) == ("cmpl", 32)
    int(digits, 16)


@pytest.mark.row("S-H-021", "S-H-027", "S-H-028", "S-H-029", "S-H-030", "S-G-003")
async def test_a_chat_stream_is_exactly_this(start: StartApi) -> None:
    bench = await start("ab")
    answer = await bench.post(CHAT, stream=True, stream_options=USAGE)
    head = {key: answer.events()[0][key] for key in ("id", "object", "created", "model")}
    head["usage"] = None
    rest = {"index": 0, "logprobs": None, "finish_reason": None}
    assert answer.events() == [
        {**head, "choices": [{**rest, "delta": ROLE}]},
        {**head, "choices": [{**rest, "delta": {"content": "a"}}]},
        {**head, "choices": [{**rest, "delta": {"content": "b"}}]},
        {
            **head,
            "choices": [{**rest, "delta": {}, "finish_reason": "stop", "matched_stop": EOS_ID}],
        },
        {**head, "choices": [], "usage": usage(len(RENDERED), 3)},
    ]
    assert head["object"] == "chat.completion.chunk"
    prefix, _, digits = head["id"].partition("-")
    assert (prefix, len(digits)) == ("chatcmpl", 32)
    int(digits, 16)


@pytest.mark.row("S-C-046", "S-C-047", "S-H-020", "S-H-024", "S-H-025", "S-H-026")
async def test_whole_answers_are_exactly_this(start: StartApi) -> None:
    bench = await start("ab")
    end = {"index": 0, "logprobs": None, "finish_reason": "stop", "matched_stop": EOS_ID}
    message = {"role": "assistant", "content": "ab", "refusal": None}
    for path, kind, choice, num_prompt_tokens in (
        (COMPLETIONS, "text_completion", {**end, "text": "ab"}, len(PROMPT)),
        (CHAT, "chat.completion", {**end, "message": message}, len(RENDERED)),
    ):
        answer = await bench.post(path)
        reply = answer.json()
        assert answer.headers["content-type"] == "application/json"
        assert reply == {
            "id": reply["id"],
            "object": kind,
            "created": reply["created"],
            "model": "org/fake",
            "choices": [choice],
            "usage": usage(num_prompt_tokens, 3),
        }
        assert b" " not in answer.body, "not compact"


@pytest.mark.row("S-C-026", "S-C-027", "S-C-068", "S-H-035")
@pytest.mark.case(55)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("options", "on_text", "on_last_finish", "has_usage_chunk"),
    [
        (None, "absent", "totals on completions", False),
        ({}, "absent", "absent", False),
        ({"include_usage": None}, "absent", "absent", False),
        ({"include_usage": False}, "absent", "absent", False),
        (USAGE, "null", "null", True),
        (CONTINUOUS, "running", "running", False),
        ({**USAGE, **CONTINUOUS}, "running", "running", True),
        ({"include_usage": False, **CONTINUOUS}, "running", "running", False),
    ],
)
async def test_usage_is_where_the_client_asked_for_it(
    start: StartApi,
    path: str,
    options: dict[str, Any] | None,
    on_text: str,
    on_last_finish: str,
    has_usage_chunk: bool,
) -> None:
    """Case 55 and D12, for two choices of different length."""
    bench = await start("abc", "d", max_running_requests=2)
    answer = await bench.post(path, stream=True, n=2, stream_options=options)
    chunks = answer.events()
    num_prompt_tokens = len(PROMPT if path == COMPLETIONS else RENDERED)
    total = usage(num_prompt_tokens, 6)
    if has_usage_chunk:
        assert chunks[-1]["choices"] == []
        assert chunks.pop()["usage"] == total
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    last = chunks[-1]
    assert last["choices"][0]["finish_reason"] == "stop"
    num_seen = [0, 0]
    for chunk in chunks:
        rule = on_last_finish if chunk is last else on_text
        index = chunk["choices"][0]["index"]
        if rule == "running":
            num_now = chunk["usage"]["completion_tokens"]
            assert chunk["usage"] == usage(num_prompt_tokens, num_now)
            assert num_now >= num_seen[index], "running counts went back"
            num_seen[index] = num_now
        elif rule == "null":
            assert chunk["usage"] is None
        elif rule == "totals on completions" and path == COMPLETIONS:
            assert chunk["usage"] == total
        else:
            assert "usage" not in chunk
    assert num_seen == ([4, 2] if on_text == "running" else [0, 0])


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_stream_options_without_a_stream_change_nothing(start: StartApi, path: str) -> None:
    bench = await start("ab")
    answer = await bench.post(path, stream_options={**USAGE, **CONTINUOUS})
    assert answer.texts() == ["ab"]
    assert answer.json()["usage"]["completion_tokens"] == 3


@pytest.mark.row("S-C-012", "S-H-013")
@pytest.mark.case(37)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("options", [None, USAGE, CONTINUOUS])
async def test_every_index_finishes_once_and_is_silent_after(
    start: StartApi, path: str, options: dict[str, Any] | None
) -> None:
    """Case 37: the first choice to finish silenced the rest."""
    bench = await start("a", "abcdef", "", "abc", max_running_requests=3)
    answer = await bench.post(path, stream=True, n=4, stream_options=options)
    assert answer.texts() == ["a", "abcdef", "", "abc"]
    finished: list[int] = []
    for choice in choices(answer):
        assert choice["index"] not in finished, "a chunk after the finish"
        assert "finish_reason" in choice
        assert ("matched_stop" in choice) == (choice["finish_reason"] is not None)
        if choice["finish_reason"] is not None:
            finished.append(choice["index"])
    assert sorted(finished) == [0, 1, 2, 3]


@pytest.mark.row("S-H-028")
async def test_role_chunks_come_in_index_order_before_anything_else(start: StartApi) -> None:
    """Client helpers append choices by position."""
    # One slot: choice 0 is over before choice 2 begins.
    bench = await start("abc", "", "def", max_running_requests=1)
    answer = await bench.post(CHAT, stream=True, n=3)
    found = choices(answer)
    assert [(choice["index"], choice["delta"]) for choice in found[:3]] == [
        (index, ROLE) for index in range(3)
    ]
    assert not any("role" in choice["delta"] for choice in found[3:])
    assert all(choice["logprobs"] is None for choice in found)


@pytest.mark.row("S-C-068", "S-H-030")
@pytest.mark.case(70)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("end", "text"), [({"max_tokens": 5}, "abcde"), ({"stop": "f"}, "abcde"), ({}, "abcdefg")]
)
async def test_a_finish_chunk_carries_no_text(
    start: StartApi, path: str, end: dict[str, Any], text: str
) -> None:
    """Case 70: clients stop reading at finish_reason and lost the last token."""
    bench = await start("abcdefg")
    answer = await bench.post(path, stream=True, **end)
    *others, finish = choices(answer)
    assert finish["finish_reason"] in ("length", "stop")
    assert finish["text" if path == COMPLETIONS else "delta"] in ("", {})
    assert all(other["finish_reason"] is None for other in others)
    texts = [text_of(other) for other in others if other.get("delta") != ROLE]
    assert all(texts), "an empty chunk"
    assert "".join(texts) == text


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_an_answer_without_any_text_still_has_its_frame(start: StartApi, path: str) -> None:
    bench = await start("")
    answer = await bench.post(path, stream=True)
    found = choices(answer)
    assert [choice["finish_reason"] for choice in found] == [None] * (path == CHAT) + ["stop"]
    assert answer.texts() == [""]


@pytest.mark.case(68)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_the_openai_librarys_models_take_every_chunk(start: StartApi, path: str) -> None:
    """Case 68: finish_reason missing or empty."""
    bench = await start("abc", "č😀", "")
    whole = await bench.post(path, n=3)
    (Completion if path == COMPLETIONS else ChatCompletion).model_validate(whole.json())
    for options in (None, USAGE, CONTINUOUS):
        answer = await bench.post(path, n=3, stream=True, stream_options=options)
        for chunk in answer.events():
            if path == CHAT:
                ChatCompletionChunk.model_validate(chunk)
                continue
            # The library has one model for replies and chunks, so null is not a reason to it.
            for choice in chunk["choices"]:
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            Completion.model_validate(chunk)


@pytest.mark.row("S-G-003")
@pytest.mark.case(71)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_an_event_is_one_line_whatever_the_text(start: StartApi, path: str) -> None:
    """Case 71."""
    text = 'a\nb\r\nc\rd\u2028e\u2029f\x85g\x0bh"\\\x00\x7f data: [DONE]\n\n'
    bench = await start(text)
    answer = await bench.post(path, stream=True, max_tokens=99)
    assert answer.texts() == [text]
    assert all(
        line in (b"", b"data: [DONE]") or orjson.loads(line.removeprefix(b"data: "))
        for line in answer.body.splitlines()
    )
