"""Logprobs of completions: four arrays, one entry a token."""

from typing import Any

import pytest

from tests.api.answers import Answer
from tests.api.kit import COMPLETIONS, PROMPT, StartApi
from tests.text.conftest import sentencepiece_backend
from trioserve.api.logprobs import CompletionLogprobs
from trioserve.core import ReadoutParams, TokenLogprobs
from trioserve.engine.request import Token
from trioserve.testing.fake_readout import fake_token_logprobs
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer
from trioserve.text.tokenizer import Tokenizer
from trioserve.text.tokenizer_files import TokenizerFiles

SMILE = r"bytes:\xf0", r"bytes:\x9f", r"bytes:\x98", r"bytes:\x80"


def read(ids: list[int], position: int, num_top: int = 0) -> TokenLogprobs:
    """What the model says of the token at `position` of these ids."""
    readout = ReadoutParams(num_top=num_top)
    return fake_token_logprobs(tuple(ids[:position]), ids[position], readout)


def logprobs_of(answer: Answer) -> dict[str, Any]:
    (choice,) = answer.joined()
    assert choice.logprobs is not None
    return choice.logprobs


@pytest.mark.row("S-C-048", "S-C-051")
@pytest.mark.case(32)
@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_are_text_or_bytes_or_names_and_offsets_count_characters(
    start: StartApi, stream: bool
) -> None:
    bench = await start("a😀b")
    entries = logprobs_of(await bench.post(COMPLETIONS, logprobs=0, stream=stream))
    assert entries["tokens"] == ["a", *SMILE, "b", "<eos>"]
    # The character begins where its first byte does; the end token has no text and comes last.
    assert entries["text_offset"] == [0, 1, 1, 1, 1, 2, 3]


@pytest.mark.row("S-C-029", "S-C-049", "S-C-050")
@pytest.mark.parametrize("num_top", [0, 1, 3, 20])
@pytest.mark.parametrize("stream", [False, True])
async def test_each_token_has_its_logprob_and_the_likeliest_with_theirs(
    start: StartApi, num_top: int, stream: bool
) -> None:
    bench = await start("abc")
    answer = await bench.post(COMPLETIONS, logprobs=num_top, stream=stream, temperature=2.0)
    entries = logprobs_of(answer)
    ids = [*PROMPT.encode(), *b"abc", EOS_ID]
    said = [read(ids, position, num_top) for position in range(len(PROMPT), len(ids))]
    # Raw model logprobs: the temperature does not show.
    assert entries["token_logprobs"] == [one.logprob for one in said]
    for token, own, top, one in zip(
        entries["tokens"], entries["token_logprobs"], entries["top_logprobs"], said, strict=True
    ):
        best = {bench.engine.model.tokenizer.token_text(i): value for i, value in one.top}
        assert top == {**best, token: own}
        assert len(top) in (num_top, num_top + 1)


@pytest.mark.row("S-C-047")
@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_are_null_unless_asked_for(start: StartApi, stream: bool) -> None:
    bench = await start("abc")
    answer = await bench.post(COMPLETIONS, stream=stream)
    assert [piece["logprobs"] for piece in answer.pieces()] == [None] * len(answer.pieces())
    assert bench.first_row().readout == ReadoutParams(), "logprobs were read for nobody"


async def test_of_tokens_with_equal_text_the_likelier_counts() -> None:
    """A byte-fallback vocabulary has a letter twice: as itself and as a byte."""
    tokenizer = Tokenizer(TokenizerFiles(sentencepiece_backend(), {}, frozenset(), None))
    letter = tokenizer.encode("xa", add_special_tokens=False)[-1]
    byte = 3 + ord("a")
    assert tokenizer.token_text(letter) == tokenizer.token_text(byte) == "a"
    assert letter != byte
    for own, other in ((letter, byte), (byte, letter)):
        said = TokenLogprobs(-3.0, top=((other, -1.0),))
        shown = CompletionLogprobs(tokenizer, 1).of_tokens([Token(own, 0, said)], 0)
        assert shown["token_logprobs"] == [-3.0]
        assert shown["top_logprobs"] == [{"a": -1.0}]


async def test_an_impossible_token_has_a_number_that_json_can_write() -> None:
    said = TokenLogprobs(float("-inf"), top=((98, float("-inf")), (99, -10_000.0)))
    shown = CompletionLogprobs(byte_tokenizer(), 2).of_tokens([Token(97, 0, said)], 0)
    assert shown["token_logprobs"] == [-9999.0]
    assert shown["top_logprobs"] == [{"a": -9999.0, "b": -9999.0, "c": -10_000.0}]


@pytest.mark.parametrize(
    ("fields", "text", "offsets"),
    [
        ({}, "one", [0, 1, 2, 3]),
        ({"stop": "wo"}, "one t", [0, 1, 2, 3, 4, 5, 5]),
        ({"stop": "wo", "no_stop_trim": True}, "one two", [0, 1, 2, 3, 4, 5, 6]),
        ({"stop": "ne t"}, "o", [0, 1, 1, 1, 1]),
        ({"stop_token_ids": [ord("t")]}, "one ", [0, 1, 2, 3, 4]),
        ({"max_tokens": 2}, "on", [0, 1]),
        ({"suffix": "..."}, "one...", [0, 1, 2, 3]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_offsets_stay_inside_a_text_that_a_stop_has_cut(
    start: StartApi, fields: dict[str, Any], text: str, offsets: list[int], stream: bool
) -> None:
    bench = await start("one two" if "stop" in str(fields) else "one")
    answer = await bench.post(COMPLETIONS, logprobs=0, stream=stream, **fields)
    assert answer.texts() == [text]
    entries = logprobs_of(answer)
    assert entries["text_offset"] == offsets
    assert len(entries["tokens"]) == len(offsets)


async def test_a_chunk_has_the_entries_of_its_own_text_and_the_finish_what_is_left(
    start: StartApi,
) -> None:
    bench = await start((*b"x", EOS_ID, *b"STy"))
    answer = await bench.post(
        COMPLETIONS, logprobs=0, stream=True, stop="STOP", ignore_eos=True, max_tokens=6
    )
    shown = [
        (piece["text"], piece["logprobs"] and piece["logprobs"]["tokens"])
        for piece in answer.pieces()
    ]
    # A special token has no text, so its chunk has none; held-back tokens come with their text.
    assert shown == [
        ("x", ["x"]),
        ("", ["<eos>"]),
        ("STy", ["S", "T", "y"]),
        ("", ["<eos>"]),
    ]
    trimmed = await bench.post(COMPLETIONS, logprobs=0, stream=True, stop="STy", ignore_eos=True)
    assert [piece["logprobs"] and piece["logprobs"]["tokens"] for piece in trimmed.pieces()] == [
        ["x"],
        ["<eos>"],
        ["S", "T", "y"],
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_each_choice_has_its_own_entries(start: StartApi, stream: bool) -> None:
    bench = await start("ab", "", "xyz")
    answer = await bench.post(COMPLETIONS, logprobs=1, n=3, stream=stream)
    tokens = [choice.logprobs and choice.logprobs["tokens"] for choice in answer.joined()]
    assert tokens == [["a", "b", "<eos>"], ["<eos>"], ["x", "y", "z", "<eos>"]]


async def test_a_large_reply_is_the_same_though_it_is_made_elsewhere(
    start: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await start("abc")
    fields: dict[str, Any] = {"prompt": ["one", "two"], "logprobs": 2, "echo": True, "n": 2}
    small = await bench.post(COMPLETIONS, **fields)
    monkeypatch.setattr("trioserve.api.off_loop.LARGE_REPLY_ITEMS", 1)
    large = await bench.post(COMPLETIONS, **fields)
    assert large.json()["choices"] == small.json()["choices"]
    streamed = await bench.post(COMPLETIONS, stream=True, **fields)
    assert streamed.joined() == small.joined()
