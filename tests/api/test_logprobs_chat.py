"""Logprobs of chat: one object a token."""

from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.api.answers import Answer, check_error
from tests.api.kit import CHAT, RENDERED, StartApi
from trioserve.core import ReadoutParams
from trioserve.testing.fake_readout import fake_token_logprobs
from trioserve.testing.fake_text import EOS_ID


def content_of(answer: Answer) -> list[dict[str, Any]]:
    (choice,) = answer.joined()
    assert choice.logprobs is not None
    return choice.logprobs["content"]


@pytest.mark.row("S-H-018", "S-H-019")
@pytest.mark.case(31)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_top", [None, 0, 1, 5])
async def test_one_entry_a_token_with_exactly_the_likeliest_asked_for(
    start: StartApi, stream: bool, num_top: int | None
) -> None:
    bench = await start("ab")
    answer = await bench.post(CHAT, logprobs=True, top_logprobs=num_top, stream=stream)
    entries = content_of(answer)
    ids = [*RENDERED.encode(), *b"ab", EOS_ID]
    assert [entry["token"] for entry in entries] == ["a", "b", "<eos>"]
    for position, entry in enumerate(entries, start=len(RENDERED)):
        readout = ReadoutParams(num_top=num_top or 0)
        said = fake_token_logprobs(tuple(ids[:position]), ids[position], readout)
        assert entry["logprob"] == said.logprob
        tops = [(top["bytes"], top["logprob"]) for top in entry["top_logprobs"]]
        # Best first, and the sampled token is not added.
        assert tops == [([token_id], logprob) for token_id, logprob in said.top]


@pytest.mark.case(32)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["a😀", "日本語", "ď", "👩\u200d👧"])
async def test_bytes_join_to_the_content_and_special_tokens_have_none(
    start: StartApi, stream: bool, text: str
) -> None:
    bench = await start(text)
    answer = await bench.post(CHAT, logprobs=True, top_logprobs=5, max_tokens=99, stream=stream)
    *entries, end = content_of(answer)
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == text
    assert answer.texts() == [text]
    assert (end["token"], end["bytes"]) == ("<eos>", None)
    assert all("\ufffd" not in entry["token"] for entry in entries)
    assert all(len(entry["top_logprobs"]) == 5 for entry in entries)


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_have_the_librarys_shape_and_are_null_unless_asked_for(
    start: StartApi, stream: bool
) -> None:
    bench = await start("ab")
    for fields, is_null in (
        ({"logprobs": True}, False),
        ({"logprobs": False}, True),
        ({"logprobs": False, "top_logprobs": 0}, True),
        ({}, True),
    ):
        answer = await bench.post(CHAT, stream=stream, **fields)
        if stream:
            for chunk in answer.events():
                ChatCompletionChunk.model_validate(chunk)
        else:
            ChatCompletion.model_validate(answer.json())
        shown = [piece["logprobs"] for piece in answer.pieces()]
        assert all(one is None for one in shown) is is_null
        assert all(one["refusal"] is None for one in shown if one is not None)


@pytest.mark.case(34)
@pytest.mark.parametrize(
    ("fields", "message", "code"),
    [
        ({"top_logprobs": 25}, "top_logprobs must be between 0 and 20", "invalid_value"),
        ({"top_logprobs": -1}, "top_logprobs must be between 0 and 20", "invalid_value"),
        ({"top_logprobs": 10**9}, "top_logprobs must be between 0 and 20", "invalid_value"),
        ({"top_logprobs": True}, "top_logprobs must be an integer", "invalid_type"),
        (
            {"top_logprobs": 1, "logprobs": False},
            "top_logprobs requires logprobs to be true",
            "invalid_value",
        ),
    ],
)
async def test_a_number_out_of_range_is_refused_before_anything_runs(
    start: StartApi, fields: dict[str, Any], message: str, code: str
) -> None:
    """Case 34: the search for the likeliest failed inside the model's step."""
    bench = await start("ab")
    answer = await bench.post(CHAT, **{"logprobs": True, **fields})
    check_error(answer, 400, f"Invalid request: {message}", code=code, param="top_logprobs")
    assert not bench.runner.plans


async def test_each_choice_of_a_stream_has_its_own_entries(start: StartApi) -> None:
    bench = await start("ab", "", "xyz")
    answer = await bench.post(CHAT, logprobs=True, n=3, stream=True)
    tokens = [
        [entry["token"] for entry in (choice.logprobs or {})["content"]]
        for choice in answer.joined()
    ]
    assert tokens == [["a", "b", "<eos>"], ["<eos>"], ["x", "y", "z", "<eos>"]]
    # The end token has no text, so it comes with the finish chunk.
    finishes = [piece for piece in answer.pieces() if piece["finish_reason"] is not None]
    assert all(piece["logprobs"]["content"][0]["token"] == "<eos>" for piece in finishes)
    assert all(piece["delta"] == {} for piece in finishes)
