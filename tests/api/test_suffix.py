"""Suffix: written behind the completion, or read by a model that fills in the middle."""

from typing import Any

import pytest
from trio.testing import MockClock

from tests.api.answers import check_error
from tests.api.kit import COMPLETIONS, PROMPT, ApiBench, StartApi
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer
from trioserve.text.fill_in_middle import FillInMiddle

MARKS = FillInMiddle("<PRE>", "<SUF>", "<MID>")
PRE, SUF, MID = EOS_ID + 1, EOS_ID + 2, EOS_ID + 3


def fill_in(bench: ApiBench) -> None:
    """Serve a model that was trained to fill in the middle."""
    bench.use_tokenizer(byte_tokenizer(more_special=tuple(MARKS), fill_in_middle=MARKS))


@pytest.mark.row("S-C-032")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"suffix": " end"}, "one two end"),
        ({"suffix": ""}, "one two"),
        ({"suffix": None}, "one two"),
        ({"suffix": " end", "echo": True}, PROMPT + "one two end"),
        ({"suffix": "t", "stop": "t"}, "one t"),
        ({"suffix": "\u2028😀", "max_tokens": 3}, "one\u2028😀"),
    ],
)
async def test_a_suffix_ends_the_text(
    start: StartApi, stream: bool, fields: dict[str, Any], text: str
) -> None:
    bench = await start("one two")
    answer = await bench.post(COMPLETIONS, stream=stream, **fields)
    assert answer.texts() == [text]
    # It costs nothing: no token is made of it, before or behind.
    assert bench.prompts() == [tuple(PROMPT.encode())]
    usage = (answer.events()[-1] if stream else answer.json())["usage"]
    assert usage["completion_tokens"] <= len("one two") + 1


@pytest.mark.row("S-C-032")
async def test_in_a_stream_the_finish_chunk_carries_the_suffix(start: StartApi) -> None:
    bench = await start("a", "")
    answer = await bench.post(COMPLETIONS, stream=True, n=2, suffix="!", logprobs=0)
    for index, texts in enumerate((["a", "!"], ["!"])):
        pieces = [piece for piece in answer.pieces() if piece["index"] == index]
        assert [piece["text"] for piece in pieces] == texts
        assert pieces[-1]["finish_reason"] == "stop"
        assert pieces[-1]["logprobs"]["tokens"] == ["<eos>"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_aborted_text_has_no_end(
    start: StartApi, autojump_clock: MockClock, stream: bool
) -> None:
    bench = await start("never", is_automatic=False, request_timeout=5.0)
    answer = await bench.post(COMPLETIONS, suffix="!", stream=stream)
    (choice,) = answer.joined()
    assert choice.finish == ("abort", None)
    assert choice.text == ""


@pytest.mark.row("S-C-032")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_template_makes_one_prompt_of_prompt_and_suffix(
    start: StartApi, stream: bool
) -> None:
    bench = await start("mid")
    fill_in(bench)
    answer = await bench.post(COMPLETIONS, prompt=["ab", "c"], suffix="yz", stream=stream)
    assert bench.prompts() == [(PRE, *b"ab", SUF, *b"yz", MID), (PRE, *b"c", SUF, *b"yz", MID)]
    assert answer.texts() == ["mid", "mid"]
    if not stream:
        assert answer.json()["usage"]["prompt_tokens"] == 7 + 6


@pytest.mark.row("S-C-032")
@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
async def test_a_template_needs_a_text_prompt(start: StartApi, prompt: Any) -> None:
    bench = await start("mid")
    fill_in(bench)
    answer = await bench.post(COMPLETIONS, prompt=prompt, suffix="yz")
    error = "Invalid request: suffix requires a text prompt"
    check_error(answer, 400, error, code="invalid_value", param="suffix")
    # Without a suffix there is nothing to fill in: an ordinary completion.
    for suffix in (None, ""):
        assert (await bench.post(COMPLETIONS, prompt=prompt, suffix=suffix)).texts() == ["mid"]
    assert bench.prompts() == [(1, 2), (1, 2)]


async def test_an_echo_is_what_the_client_sent_with_an_entry_for_all_that_the_model_read(
    start: StartApi,
) -> None:
    bench = await start("mid")
    # Of letters that the fake model has logprobs for.
    bench.use_tokenizer(byte_tokenizer(fill_in_middle=FillInMiddle("<", "|", ">")))
    answer = await bench.post(COMPLETIONS, prompt="ab", suffix="yz", echo=True, logprobs=0)
    (choice,) = answer.joined()
    assert choice.text == "abmid"
    assert choice.logprobs is not None
    tokens = ["<", "a", "b", "|", "y", "z", ">", "m", "i", "d", "<eos>"]
    assert choice.logprobs["tokens"] == tokens
    assert choice.logprobs["text_offset"] == [0, 0, 1, 2, 2, 2, 2, 2, 3, 4, 5]
