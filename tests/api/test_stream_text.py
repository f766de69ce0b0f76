"""Promise: the joined text of a stream is the text of the whole answer, character for character."""

import codecs
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.answers import Answer
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, ApiBench, StartApi, open_api

# Words, characters of two to four bytes, joined emoji, and bytes that are no character.
TEXTS = ("a", "b", "ab", "\n", "ď", "日本", "😀", "🇨🇿", "👩\u200d👩\u200d👧", "e\u0301", "STOP")
NO_TEXTS = (b"\xff", b"\xe6\x97", b"\x80")
PIECES = st.sampled_from([*(text.encode() for text in TEXTS), *NO_TEXTS])
SCRIPTS = st.lists(PIECES, max_size=12).map(b"".join).map(tuple)
STOPS = st.lists(
    st.sampled_from(["a", "ab", "aba", "STOP", "STOPPED", "😀", "日", "本ab", "\n\n", "b\ufffd"]),
    max_size=4,
    unique=True,
)


async def both(bench: ApiBench, path: str, **fields: Any) -> tuple[Answer, Answer]:
    whole = await bench.post(path, **fields)
    streamed = await bench.post(path, stream=True, stream_options={"include_usage": True}, **fields)
    assert whole.status == streamed.status == 200, (whole.body, streamed.body)
    return whole, streamed


def expected(script: tuple[int, ...], stops: list[str], max_tokens: int) -> str:
    """The same by decoding everything again after each token and looking for all stops."""
    given = script[:max_tokens]
    for num_tokens in range(1, len(given) + 1):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(bytes(given[:num_tokens]))
        starts = [text.index(stop) for stop in stops if stop in text]
        if starts:
            return text[: min(starts)]
    return bytes(given).decode(errors="replace")


def ends(answer: Answer, *, is_streamed: bool) -> list[tuple[Any, ...]]:
    found = [
        (choice["index"], choice["finish_reason"], choice["matched_stop"])
        for reply in (answer.events() if is_streamed else [answer.json()])
        for choice in reply["choices"]
        if choice["finish_reason"] is not None
    ]
    return sorted(found)


@settings(max_examples=40, deadline=None)
@given(
    path=st.sampled_from(ENDPOINTS),
    scripts=st.lists(SCRIPTS, min_size=1, max_size=3),
    stops=STOPS,
    max_tokens=st.integers(1, 40),
    depth=st.sampled_from([1, 2]),
)
async def test_a_stream_joins_to_the_whole_answer(
    path: str, scripts: list[tuple[int, ...]], stops: list[str], max_tokens: int, depth: int
) -> None:
    # A nursery for each example: the fixture's is the test's.
    async with trio.open_nursery() as nursery:
        bench = await open_api(nursery, *scripts, depth=depth)
        fields = {"n": len(scripts), "stop": stops, "max_tokens": max_tokens}
        whole, streamed = await both(bench, path, **fields)
        assert streamed.texts() == whole.texts()
        assert ends(streamed, is_streamed=True) == ends(whole, is_streamed=False)
        assert streamed.events()[-1]["usage"] == whole.json()["usage"]
        assert whole.texts() == [expected(script, stops, max_tokens) for script in scripts]
        await trio.testing.wait_all_tasks_blocked()
        bench.check_idle()
        nursery.cancel_scope.cancel()


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


async def test_a_thousand_bytes_that_are_no_character_are_shown_as_they_come(
    start: StartApi,
) -> None:
    """Case 64: the client got nothing while the window grew."""
    bench = await start((0xFF,) * 1000, num_pages=600, max_model_len=2000)
    whole, streamed = await both(bench, CHAT, max_tokens=1000)
    assert whole.texts() == streamed.texts() == ["\ufffd" * 1000]
    assert len(streamed.events()) > 10


async def test_special_tokens_leave_no_text(start: StartApi) -> None:
    bench = await start((*b"a", 256, *b"b", 256))
    whole, streamed = await both(bench, CHAT, ignore_eos=True, max_tokens=4)
    assert whole.texts() == streamed.texts() == ["ab"]
    assert whole.json()["usage"]["completion_tokens"] == 4
