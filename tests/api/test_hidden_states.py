"""The last token's hidden state, as a member of the choice or a chunk of its own."""

from typing import Any

import pytest
from trio.testing import MockClock

from tests.api.kit import COMPLETIONS, ENDPOINTS, PROMPT, RENDERED, StartApi
from trioserve.testing.fake_readout import fake_state


@pytest.mark.row("S-C-039", "S-H-039")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("value", [True, "last"])
async def test_it_is_what_the_last_token_was_drawn_from(
    start: StartApi, path: str, stream: bool, value: Any
) -> None:
    bench = await start("abc", "")
    answer = await bench.post(path, n=2, stream=stream, return_hidden_states=value)
    prompt = tuple((PROMPT if path == COMPLETIONS else RENDERED).encode())
    # The end token is a generated one too: its state is that after the text.
    states = [choice.hidden_state for choice in answer.joined()]
    assert states == [fake_state((*prompt, *b"abc")), fake_state(prompt)]
    assert answer.texts() == ["abc", ""]


@pytest.mark.row("S-C-039", "S-H-039")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_it_is_absent_unless_asked_for(start: StartApi, path: str, stream: bool) -> None:
    bench = await start("abc")
    for value in (None, False):
        answer = await bench.post(path, stream=stream, return_hidden_states=value)
        assert b"hidden" not in answer.body
    assert not bench.first_row().readout.has_hidden_state


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_in_a_stream_it_comes_after_all_choices_and_before_the_usage(
    start: StartApi, path: str
) -> None:
    bench = await start("abc", "d")
    answer = await bench.post(
        path,
        n=2,
        stream=True,
        return_hidden_states=True,
        stream_options={"include_usage": True},
    )
    *_, finish, first, second, usage = answer.events()
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    for index, chunk in enumerate((first, second)):
        (choice,) = chunk["choices"]
        state = choice.pop("hidden_states") if path == COMPLETIONS else None
        state = state or choice["delta"].pop("hidden_states")
        assert all(isinstance(number, float) for number in state)
        frame = {"index": index, "logprobs": None, "finish_reason": None}
        assert choice == {**frame, **({"text": ""} if path == COMPLETIONS else {"delta": {}})}
        assert chunk["usage"] is None
        assert chunk["id"] == finish["id"]


async def test_the_end_of_a_completion_has_the_usage_though_states_follow(start: StartApi) -> None:
    bench = await start("abc")
    answer = await bench.post(COMPLETIONS, stream=True, return_hidden_states=True)
    *_, finish, hidden = answer.events()
    assert finish["usage"]["completion_tokens"] == 4
    assert "usage" not in hidden


@pytest.mark.parametrize("stream", [False, True])
async def test_where_nothing_is_generated_it_is_the_prompts(start: StartApi, stream: bool) -> None:
    bench = await start("never")
    answer = await bench.post(
        COMPLETIONS, echo=True, max_tokens=0, return_hidden_states=True, stream=stream
    )
    (choice,) = answer.joined()
    assert choice.text == PROMPT
    assert choice.hidden_state == fake_state(tuple(PROMPT.encode()))


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_choice_that_was_aborted_before_any_token_has_none(
    start: StartApi, autojump_clock: MockClock, path: str, stream: bool
) -> None:
    bench = await start("never", is_automatic=False, request_timeout=5.0)
    answer = await bench.post(path, return_hidden_states=True, stream=stream)
    (choice,) = answer.joined()
    assert choice.finish == ("abort", None)
    assert choice.hidden_state == []


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_running_usage_is_on_every_chunk_with_a_choice(start: StartApi, path: str) -> None:
    bench = await start("abc")
    options = {"continuous_usage_stats": True}
    answer = await bench.post(path, stream=True, return_hidden_states=True, stream_options=options)
    assert answer.events()[-1]["usage"]["completion_tokens"] == len("abc") + 1
    assert answer.joined()[0].hidden_state
