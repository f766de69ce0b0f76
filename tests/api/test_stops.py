"""Stop ids and patterns, what is kept of a stop, and special tokens in the text."""

from typing import Any

import orjson
import pytest

from tests.api.answers import check_error
from tests.api.kit import COMPLETIONS, ENDPOINTS, StartApi
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer
from trioserve.text.regex_stops import SearchBudget

TEXT = "one two three"


@pytest.mark.row("S-C-014", "S-C-015", "S-C-035", "S-C-036", "S-C-052", "S-C-056")
@pytest.mark.row("S-H-014", "S-H-038", "S-H-040")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "text", "matched", "num_tokens"),
    [
        ({"stop_token_ids": [ord("t")]}, "one ", ord("t"), 5),
        ({"stop_token_ids": [ord("w"), ord("t")]}, "one ", ord("t"), 5),
        ({"stop_token_ids": []}, TEXT, EOS_ID, 14),
        ({"stop_token_ids": None}, TEXT, EOS_ID, 14),
        ({"stop_token_ids": [EOS_ID], "ignore_eos": True}, TEXT, EOS_ID, 14),
        ({"stop_regex": "t.o"}, "one ", "t.o", 7),
        ({"stop_regex": ["z", "(?i)T[HW]"]}, "one ", "(?i)T[HW]", 6),
        ({"stop_regex": []}, TEXT, EOS_ID, 14),
        # The earliest match wins, of two that start there the first listed, strings first.
        ({"stop_regex": "n.*t", "stop": ["tw"]}, "o", "n.*t", 5),
        ({"stop_regex": "tw", "stop": "tw"}, "one ", "tw", 6),
        ({"stop": ["two", "tw"]}, "one ", "tw", 6),
        ({"no_stop_trim": True, "stop": "two"}, "one two", "two", 7),
        ({"no_stop_trim": True, "stop_regex": "t.o"}, "one two", "t.o", 7),
        ({"no_stop_trim": True, "stop_token_ids": [ord("t")]}, "one t", ord("t"), 5),
        ({"no_stop_trim": True}, TEXT, EOS_ID, 14),
        ({"no_stop_trim": True, "skip_special_tokens": False}, f"{TEXT}<eos>", EOS_ID, 14),
        ({"skip_special_tokens": False}, TEXT, EOS_ID, 14),
    ],
)
async def test_a_stop_ends_the_choice_is_told_and_is_kept_only_if_asked_for(
    start: StartApi,
    path: str,
    stream: bool,
    fields: dict[str, Any],
    text: str,
    matched: object,
    num_tokens: int,
) -> None:
    bench = await start(TEXT)
    options = {"include_usage": True} if stream else None
    answer = await bench.post(path, stream=stream, stream_options=options, **fields)
    (choice,) = answer.joined()
    assert choice.text == text
    assert choice.finish == ("stop", matched)
    usage = (answer.events()[-1] if stream else answer.json())["usage"]
    # The token that stops is billed, those that the same step may have brought behind it are not.
    assert usage["completion_tokens"] == num_tokens
    bench.check_idle()


@pytest.mark.row("S-C-033", "S-H-017")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, ("length", None)),
        ({"stop": "b"}, ("stop", "b")),
        ({"stop_token_ids": [ord("b")]}, ("stop", ord("b"))),
        ({"stop_regex": "[bc]"}, ("stop", "[bc]")),
    ],
)
async def test_without_the_models_end_explicit_stops_still_stop(
    start: StartApi, path: str, stream: bool, fields: dict[str, Any], finish: object
) -> None:
    bench = await start((*b"a", EOS_ID, *b"ab"))
    answer = await bench.post(path, ignore_eos=True, max_tokens=9, stream=stream, **fields)
    (choice,) = answer.joined()
    assert choice.finish == finish
    assert choice.text == ("aa" if fields else "aab")


@pytest.mark.row("S-C-034", "S-H-038")
@pytest.mark.case(67)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_special_tokens_are_shown_only_if_asked_for_and_their_spelling_always(
    start: StartApi, path: str, stream: bool
) -> None:
    turn = EOS_ID + 1
    bench = await start((*b"<tu", turn, *b"rn><turn>", turn, *b"<"))
    bench.use_tokenizer(byte_tokenizer(more_special=("<turn>",)))
    answer = await bench.post(path, stream=stream, max_tokens=99)
    assert answer.texts() == ["<turn><turn><"]
    answer = await bench.post(path, stream=stream, max_tokens=99, skip_special_tokens=False)
    assert answer.texts() == ["<tu<turn>rn><turn><turn><"]


@pytest.mark.case(41)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_stop_is_never_empty_and_their_number_has_a_limit(
    start: StartApi, path: str
) -> None:
    bench = await start(TEXT)
    for stop, message in (
        ("", "stop sequences cannot be empty"),
        (["a", ""], "stop sequences cannot be empty"),
        (["a"] * 65, "at most 64 stop sequences are allowed"),
    ):
        answer = await bench.post(path, stop=stop)
        message = f"Invalid request: {message}"
        check_error(answer, 400, message, code="invalid_value", param="stop")
    for stop in ([], None, ["never"] * 64):
        assert (await bench.post(path, stop=stop)).texts() == [TEXT]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stop_regex", ["(", ["a", "[z-a]"], "(?P<x", "", "*"])
async def test_a_pattern_that_does_not_compile_is_refused(
    start: StartApi, path: str, stop_regex: Any
) -> None:
    bench = await start(TEXT)
    answer = await bench.post(path, stop_regex=stop_regex)
    assert answer.status == 400
    message = "Invalid request: stop_regex is not a valid regular expression: "
    assert answer.json()["message"].startswith(message)
    assert not bench.runner.plans


@pytest.fixture
def no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SearchBudget, "CAPACITY_S", 0.0)
    monkeypatch.setattr(SearchBudget, "REFILL_S", 0.0)


TOO_SLOW = "Invalid request: stop_regex takes too long to search for in the generated text"


@pytest.mark.usefixtures("no_budget")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_pattern_that_takes_too_long_is_the_requests_own_error(
    start: StartApi, path: str
) -> None:
    bench = await start(TEXT)
    answer = await bench.post(path, stop_regex="(t|t)*x")
    check_error(answer, 400, TOO_SLOW, code="stop_regex_timeout", param="stop_regex")
    assert (await bench.post(path)).texts() == [TEXT]
    bench.check_idle()


@pytest.mark.row("S-N-005")
@pytest.mark.usefixtures("no_budget")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_in_a_stream_that_error_is_an_event_and_then_the_end(
    start: StartApi, path: str
) -> None:
    bench = await start(TEXT)
    answer = await bench.post(path, stop_regex="(t|t)*x", stream=True)
    *chunks, last = answer.events()
    assert (last["code"], last["error"]["code"]) == (400, "stop_regex_timeout")
    assert last["message"] == TOO_SLOW
    assert not [chunk for chunk in chunks if chunk["choices"][0]["finish_reason"]]
    bench.check_idle()


@pytest.mark.row("S-N-005")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_failure_after_some_text_is_an_event_and_then_the_end(
    start: StartApi, path: str
) -> None:
    bench = await start("ab!cd", poison=ord("!"), depth=1)
    answer = await bench.post(path, stream=True, stream_options={"include_usage": True})
    *chunks, last = answer.events()
    texts = [
        piece.get("text", piece.get("delta", {}).get("content"))
        for c in chunks
        for piece in c["choices"]
    ]
    assert [text for text in texts if text] == ["a", "b", "!"]
    # No finish chunk and no usage follow an error.
    assert all(piece["finish_reason"] is None for c in chunks for piece in c["choices"])
    assert last["object"] == "error"
    assert (last["type"], last["code"]) == ("internal_server_error", 500)
    assert last["error"]["code"] == "internal_error"
    assert answer.body.endswith(b"\n\ndata: " + orjson.dumps(last) + b"\n\ndata: [DONE]\n\n")
    whole = await bench.post(path)
    assert whole.status == 500
    bench.check_idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_stops_of_a_choice_do_not_end_another(start: StartApi, stream: bool) -> None:
    bench = await start("aXb", "acX", "b", max_running_requests=3)
    answer = await bench.post(COMPLETIONS, stream=stream, n=3, stop="X")
    assert [(choice.text, choice.finish) for choice in answer.joined()] == [
        ("a", ("stop", "X")),
        ("ac", ("stop", "X")),
        ("b", ("stop", EOS_ID)),
    ]
