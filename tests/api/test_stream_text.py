"""Promise: the joined text of a stream is the text of the whole answer, character for character."""

import codecs
from itertools import chain
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.answers import Answer
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, ApiBench, StartApi, open_api
from trioserve.testing.fake_text import EOS_ID

# Words, characters of two to four bytes, joined emoji, a special token, and bytes that are no
# character.
TEXTS = ("a", "b", "ab", "\n", "ď", "日本", "😀", "🇨🇿", "👩\u200d👩\u200d👧", "e\u0301", "STOP")
NO_TEXTS = ((0xFF,), (0xE6, 0x97), (0x80,), (EOS_ID,))
PIECES = st.sampled_from([*(tuple(text.encode()) for text in TEXTS), *NO_TEXTS])
SCRIPTS = st.lists(PIECES, max_size=12).map(lambda pieces: tuple(chain.from_iterable(pieces)))
STOPS = st.lists(
    st.sampled_from(["a", "ab", "aba", "STOP", "STOPPED", "😀", "日", "本ab", "\n\n", "b\ufffd"]),
    max_size=4,
    unique=True,
)
REGEXES = st.lists(st.sampled_from(["[ab]{3}", "b+$", "日.", "O|\\n", "(?<=a)b"]), max_size=2)


async def both(bench: ApiBench, path: str, **fields: Any) -> tuple[Answer, Answer]:
    whole = await bench.post(path, **fields)
    streamed = await bench.post(path, stream=True, stream_options={"include_usage": True}, **fields)
    assert whole.status == streamed.status == 200, (whole.body, streamed.body)
    return whole, streamed


def expected(script: tuple[int, ...], stops: list[str], max_tokens: int) -> str:
    """The same by decoding everything again after each token and looking for all stops."""
    given = bytes(script[:max_tokens])
    for num_tokens in range(1, len(given) + 1):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(given[:num_tokens])
        starts = [text.index(stop) for stop in stops if stop in text]
        if starts:
            return text[: min(starts)]
    return given.decode(errors="replace")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    path=st.sampled_from(ENDPOINTS),
    scripts=st.lists(
        SCRIPTS.map(lambda ids: tuple(i for i in ids if i != EOS_ID)), min_size=1, max_size=3
    ),
    stops=STOPS,
    max_tokens=st.integers(1, 40),
    depth=st.sampled_from([1, 2]),
)
async def test_the_text_is_what_the_tokens_say_up_to_the_first_stop(
    path: str, scripts: list[tuple[int, ...]], stops: list[str], max_tokens: int, depth: int
) -> None:
    # A nursery for each example: the fixture's is the test's.
    async with trio.open_nursery() as nursery:
        bench = await open_api(nursery, *scripts, depth=depth)
        fields = {"n": len(scripts), "stop": stops, "max_tokens": max_tokens}
        answer = await bench.post(path, **fields)
        assert answer.texts() == [expected(script, stops, max_tokens) for script in scripts]
        nursery.cancel_scope.cancel()


OPTIONS = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 40), "seed": st.integers(0, 3)},
    optional={
        "stop": STOPS,
        "stop_regex": REGEXES,
        "stop_token_ids": st.sampled_from([[], [ord("b")], [0x80, EOS_ID]]),
        "no_stop_trim": st.booleans(),
        "ignore_eos": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "return_hidden_states": st.booleans(),
    },
)
ON_COMPLETIONS = st.fixed_dictionaries(
    {},
    optional={
        "logprobs": st.integers(0, 2),
        "echo": st.booleans(),
        "suffix": st.sampled_from(["", " end", "STOP"]),
        "prompt": st.sampled_from(
            ["Once", "日本 😀", ["a", "é"], [1, 2, 0xE6], [list("ď".encode()), [EOS_ID, 0xFF, 97]]]
        ),
    },
)
ON_CHAT = st.fixed_dictionaries(
    {}, optional={"logprobs": st.just(True), "top_logprobs": st.integers(0, 2)}
).filter(lambda options: "logprobs" in options or not options.get("top_logprobs"))


@settings(max_examples=150, deadline=None)
@given(
    request=st.one_of(
        st.tuples(st.just(COMPLETIONS), OPTIONS, ON_COMPLETIONS),
        st.tuples(st.just(CHAT), OPTIONS, ON_CHAT),
    ),
    scripts=st.lists(SCRIPTS, min_size=1, max_size=3),
    depth=st.sampled_from([1, 2]),
    data=st.data(),
)
@pytest.mark.slow
@pytest.mark.row("S-C-025", "S-H-021")
@pytest.mark.case(29, 40, 62, 65)
async def test_a_stream_joins_to_the_whole_answer(
    request: tuple[str, dict[str, Any], dict[str, Any]],
    scripts: list[tuple[int, ...]],
    depth: int,
    data: st.DataObject,
) -> None:
    path, options, others = request
    fields = {"n": len(scripts), **options, **others}
    fields["min_tokens"] = data.draw(st.integers(0, fields["max_tokens"]), label="min_tokens")
    async with trio.open_nursery() as nursery:
        bench = await open_api(nursery, *scripts, depth=depth)
        whole, streamed = await both(bench, path, **fields)
        assert streamed.joined() == whole.joined()
        assert streamed.events()[-1]["usage"] == whole.json()["usage"]
        for piece in whole.pieces():
            check_logprobs(piece, fields)
        await trio.testing.wait_all_tasks_blocked()
        bench.check_idle()
        nursery.cancel_scope.cancel()


def check_logprobs(choice: dict[str, Any], fields: dict[str, Any]) -> None:
    """What holds for the entries of every choice."""
    if fields.get("logprobs") is None:
        assert choice["logprobs"] is None
    elif "text" in choice:
        columns = choice["logprobs"]
        assert len({len(column) for column in columns.values()}) == 1
        offsets, text = (
            columns["text_offset"],
            choice["text"].removesuffix(fields.get("suffix", "")),
        )
        assert offsets == sorted(offsets)
        assert all(0 <= offset <= len(text) for offset in offsets)
        for offset, token in zip(offsets, columns["tokens"], strict=True):
            shown = text[offset : offset + len(token)]
            if len(shown) == len(token) == 1:
                # One byte of this tokenizer is a whole character only in ASCII.
                assert shown == token


@pytest.mark.row("S-H-029")
@pytest.mark.case(62)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "text", ["ďábel", "😀😀", "日本語", "🇨🇿", "👩\u200d👩\u200d👧", "e\u0301", "\ufffd"]
)
async def test_a_character_is_never_split_between_chunks(
    start: StartApi, path: str, text: str
) -> None:
    """Case 62: tokens decoded one by one."""
    bench = await start(text)
    whole, streamed = await both(bench, path, max_tokens=99)
    assert whole.texts() == streamed.texts() == [text]
    deltas = [
        choice.get("text") or choice.get("delta", {}).get("content", "")
        for chunk in streamed.events()
        for choice in chunk["choices"]
    ]
    assert [delta for delta in deltas if delta] == list(text)


@pytest.mark.case(65)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("max_tokens", "text"),
    [(1, "a"), (2, "a\ufffd"), (3, "a\ufffd"), (4, "a\ufffd"), (5, "a😀"), (6, "a😀b")],
)
async def test_a_cut_inside_a_character_looks_the_same_in_both_modes(
    start: StartApi, path: str, max_tokens: int, text: str
) -> None:
    """Case 65: completed characters were dropped with the incomplete tail."""
    bench = await start("a😀b")
    whole, streamed = await both(bench, path, max_tokens=max_tokens)
    assert whole.texts() == streamed.texts() == [text]
    assert whole.json()["usage"]["completion_tokens"] == max_tokens


@pytest.mark.case(40)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("script", "stop", "max_tokens", "text"),
    [
        ("ends in ST", "STOP", 99, "ends in ST"),  # by EOS, while text is held back
        ("ends in STOL", "STOP", 10, "ends in ST"),  # by length
        ("STOSTOP", "STOP", 99, "STO"),
        ("STOSTOL", "STOP", 99, "STOSTOL"),
        ("aaab", "aab", 99, "a"),
        ("line\nmore", "\n", 99, "line"),
        ("line\r\n", "\n\n", 99, "line\r\n"),
        ("a😀", "😀😀", 99, "a😀"),
        ("a😀", "😀😀", 3, "a\ufffd"),
    ],
)
async def test_text_held_back_for_a_stop_is_never_lost(
    start: StartApi, path: str, script: str, stop: str, max_tokens: int, text: str
) -> None:
    """Case 40: the last characters were dropped, in streams only."""
    bench = await start(script)
    whole, streamed = await both(bench, path, stop=stop, max_tokens=max_tokens)
    assert whole.texts() == streamed.texts() == [text]
    # What was held back comes in a content chunk, before the finish chunk.
    *_, finish, _usage = streamed.events()
    assert finish["choices"][0]["finish_reason"] in ("stop", "length")
    assert finish["choices"][0].get("text", "") == ""


async def test_nothing_is_held_back_that_cannot_become_a_stop(start: StartApi) -> None:
    bench = await start("xSTxSTy")
    streamed = await bench.post(COMPLETIONS, stream=True, stop=["STOP"])
    deltas = [chunk["choices"][0]["text"] for chunk in streamed.events()]
    assert deltas == ["x", "STx", "STy", ""]


@pytest.mark.case(64)
async def test_a_thousand_bytes_that_are_no_character_are_shown_as_they_come(
    start: StartApi,
) -> None:
    """Case 64: the client got nothing while the window grew."""
    bench = await start((0xFF,) * 1000, num_pages=600, max_model_len=2000)
    whole, streamed = await both(bench, CHAT, max_tokens=1000)
    assert whole.texts() == streamed.texts() == ["\ufffd" * 1000]
    assert len(streamed.events()) > 10


@pytest.mark.row("S-C-034", "S-H-038")
@pytest.mark.case(67)
async def test_special_tokens_leave_no_text(start: StartApi) -> None:
    bench = await start((*b"a", 256, *b"b", 256))
    whole, streamed = await both(bench, CHAT, ignore_eos=True, max_tokens=4)
    assert whole.texts() == streamed.texts() == ["ab"]
    assert whole.json()["usage"]["completion_tokens"] == 4
