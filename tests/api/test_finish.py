"""What ends a choice: EOS, stop strings and limits."""

from typing import Any

import pytest

from tests.api.kit import ENDPOINTS, StartApi


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
