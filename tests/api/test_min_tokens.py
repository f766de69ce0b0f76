"""`min_tokens`: nothing stops a choice before, and it never asks for more than the limit allows."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, StartApi
from trioserve.testing.fake_text import EOS_ID

WRONG = "Invalid request: min_tokens must be in [0, max_tokens]"


@pytest.mark.row("S-C-037", "S-H-038")
@pytest.mark.case(61)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "script"),
    [
        ({}, "ab"),
        ({"stop_token_ids": [ord("b")]}, "abbbbb"),
        ({"stop": "b"}, "abbbbbbbbbbbbbb"),
        ({"stop_regex": "b"}, "abbbbbbbbbbbbbb"),
        ({"stop": "a", "stop_token_ids": [ord("b")]}, "ab"),
    ],
)
async def test_no_stop_of_any_kind_comes_early(
    start: StartApi, path: str, stream: bool, fields: dict[str, Any], script: str
) -> None:
    bench = await start(script)
    for min_tokens in (1, 5, 12):
        answer = await bench.post(
            path,
            min_tokens=min_tokens,
            max_tokens=40,
            stream=stream,
            stream_options={"include_usage": True} if stream else None,
            **fields,
        )
        (choice,) = answer.joined()
        usage = (answer.events()[-1] if stream else answer.json())["usage"]
        assert usage["completion_tokens"] >= min_tokens
        assert choice.finish is not None
        # What would have stopped it is masked, so its text is never shown either.
        assert "<eos>" not in choice.text
    bench.check_idle()


@pytest.mark.case(61)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_an_end_that_is_drawn_in_time_still_ends_the_choice(
    start: StartApi, path: str
) -> None:
    bench = await start("abcdef")
    answer = await bench.post(path, min_tokens=6, max_tokens=40)
    (choice,) = answer.joined()
    assert (choice.text, choice.finish) == ("abcdef", ("stop", EOS_ID))


@pytest.mark.row("S-C-037")
@pytest.mark.case(61)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"min_tokens": 6, "max_tokens": 5},
        {"min_tokens": 6, "max_completion_tokens": 5, "max_tokens": 9},
        {"min_tokens": -1},
        {"min_tokens": 17},  # the default limit is 16
        {"min_tokens": 2**63 - 1},
    ],
)
async def test_more_than_the_limit_is_refused(
    start: StartApi, path: str, stream: bool, fields: dict[str, Any]
) -> None:
    bench = await start("ab")
    answer = await bench.post(path, stream=stream, **fields)
    check_error(answer, 400, WRONG, code="invalid_value", param="min_tokens")
    assert not bench.runner.plans


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_default_that_the_prompt_leaves_no_room_for_counts_as_cut(
    start: StartApi, path: str
) -> None:
    bench = await start("never ending story", max_model_len=40, default_max_tokens="context")
    prompt = [[1] * 30, [1] * 35] if path == COMPLETIONS else [1] * 35
    fields: dict[str, Any] = {"prompt": prompt}
    if path == CHAT:
        fields["messages"] = None
    answer = await bench.post(path, min_tokens=6, **fields)
    check_error(answer, 400, WRONG, code="invalid_value", param="min_tokens")
    answer = await bench.post(path, min_tokens=5, **fields)
    assert answer.status == 200


async def test_a_full_queue_does_not_hide_a_request_that_contradicts_itself(
    start: StartApi,
) -> None:
    bench = await start("ab", max_queued_requests=0, max_running_requests=1)
    answer = await bench.post(COMPLETIONS, min_tokens=2, max_tokens=1, prompt="x" * 999)
    check_error(answer, 400, WRONG, code="invalid_value", param="min_tokens")
