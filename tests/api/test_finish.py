"""What ends a choice: EOS, stop strings and limits."""

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from tests.api.kit import CHAT, ENDPOINTS, StartApi

if TYPE_CHECKING:
    from tests.api.answers import Answer


@pytest.mark.row("S-C-014", "S-C-033", "S-C-052", "S-C-053", "S-C-056")
@pytest.mark.row("S-H-014", "S-H-017", "S-H-025", "S-H-040")
@pytest.mark.case(61)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "text", "reason", "matched", "num_tokens"),
    [
        ({}, "one two three", "stop", 256, 14),
        ({"stop": None}, "one two three", "stop", 256, 14),
        ({"stop": []}, "one two three", "stop", 256, 14),
        ({"stop": " t"}, "one", "stop", " t", 5),
        ({"stop": ["three", "two"]}, "one ", "stop", "two", 7),
        ({"stop": ["never"] * 64}, "one two three", "stop", 256, 14),
        ({"stop": "one two three"}, "", "stop", "one two three", 13),
        ({"max_tokens": 5}, "one t", "length", None, 5),
        ({"stop": "one two", "max_tokens": 6}, "one tw", "length", None, 6),
        ({"ignore_eos": True, "max_tokens": 20}, "one two three", "length", None, 20),
        ({"ignore_eos": True, "stop": "three"}, "one two ", "stop", "three", 13),
        ({"ignore_eos": False}, "one two three", "stop", 256, 14),
    ],
)
async def test_what_ends_a_choice_and_what_is_left_of_its_text(
    start: StartApi,
    path: str,
    stream: bool,
    fields: dict[str, Any],
    text: str,
    reason: str,
    matched: object,
    num_tokens: int,
) -> None:
    bench = await start("one two three")
    options = {"include_usage": True} if stream else None
    answer = await bench.post(path, stream=stream, stream_options=options, **fields)
    assert answer.texts() == [text]
    last, usage = answer.events()[-2:] if stream else (answer.json(), answer.json())
    assert last["choices"][0]["finish_reason"] == reason
    assert last["choices"][0]["matched_stop"] == matched
    assert usage["usage"]["completion_tokens"] == num_tokens
    bench.check_idle()


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_stop_of_a_megabyte_with_any_characters_is_a_stop(
    start: StartApi, path: str
) -> None:
    bench = await start("a\x00\u2028b")
    answer = await bench.post(path, stop=["x" * 1_000_000, "\x00\u2028"])
    assert answer.texts() == ["a"]


@pytest.mark.row("S-C-054")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_reserved_reason_is_never_given(start: StartApi, path: str, stream: bool) -> None:
    """`content_filter`: whatever ends a choice, it is one of the other reasons."""
    bench = await start("a", "bbbbbbbb", "cSTOP", max_running_requests=1)
    answer = await bench.post(path, n=3, stop="STOP", max_tokens=6, stream=stream)
    reasons = [choice.finish and choice.finish[0] for choice in answer.joined()]
    assert reasons == ["stop", "length", "stop"]


@pytest.mark.row("S-C-055", "S-H-040")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_aborted_choice_keeps_its_text_and_says_so(
    start: StartApi, autojump_clock: MockClock, path: str, stream: bool
) -> None:
    bench = await start("abcdef", is_automatic=False, request_timeout=5.0, depth=1)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await bench.post(path, n=2, stream=stream))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        for _ in range(2):
            await bench.finish_step()
    for choice in answers[0].joined():
        assert choice.finish == ("abort", None)
        assert choice.text in ("a", "ab")
    if path == CHAT and stream:
        roles = [piece["index"] for piece in answers[0].pieces() if "role" in piece["delta"]]
        assert roles == [0, 1]
