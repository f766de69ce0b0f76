"""Logprobs and hidden states of `/generate`."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.kit import COMPLETIONS, StartApi
from tests.api.native import META, both, generate
from trioserve.core import ReadoutParams
from trioserve.testing.fake_readout import fake_state
from trioserve.testing.fake_text import EOS_ID


@pytest.mark.row("S-N-014")
@pytest.mark.parametrize("start_len", [0, 1, 3, 4, -1])
@pytest.mark.parametrize("with_text", [False, True])
async def test_logprobs_are_those_of_completions_in_sglangs_form(
    start: StartApi, start_len: int, with_text: bool
) -> None:
    bench = await start("hi")
    (answer,) = await both(
        bench,
        text="Once",
        return_logprob=True,
        logprob_start_len=start_len,
        top_logprobs_num=2,
        return_text_in_logprobs=with_text,
    )
    meta = answer["meta_info"]
    reply = (await bench.post(COMPLETIONS, prompt="Once", echo=True, logprobs=2)).json()
    known = reply["choices"][0]["logprobs"]
    num_shown = 4 if start_len == -1 else start_len
    ids = [*b"Once", *b"hi", EOS_ID]
    texts = [*"Once", *"hi", "<eos>"]
    entries = [
        [logprob, token_id, text if with_text else None]
        for logprob, token_id, text in zip(known["token_logprobs"], ids, texts, strict=True)
    ]
    assert meta["input_token_logprobs"] == entries[num_shown:4]
    assert meta["output_token_logprobs"] == entries[4:]
    tops = [*meta["input_top_logprobs"], *meta["output_top_logprobs"]]
    for top, expected in zip(tops, known["top_logprobs"][num_shown:], strict=True):
        if expected is None:
            assert top is None
            continue
        assert len(top) == 2
        assert top == sorted(top, reverse=True)
        for logprob, token_id, text in top:
            assert expected[chr(token_id)] == logprob
            assert text == (chr(token_id) if with_text else None)
    assert "input_token_ids_logprobs" not in meta


async def test_the_first_token_of_a_prompt_has_no_logprob(start: StartApi) -> None:
    bench = await start("h")
    (answer,) = await both(bench, text="Once", return_logprob=True, logprob_start_len=0)
    assert answer["meta_info"]["input_token_logprobs"][0] == [None, ord("O"), None]
    assert answer["meta_info"]["input_top_logprobs"] == [None, [], [], []]


@pytest.mark.row("S-N-014")
async def test_chosen_tokens_are_reported_at_each_position(start: StartApi) -> None:
    bench = await start("h")
    asked = [ord("h"), EOS_ID, 0]
    (answer,) = await both(
        bench,
        text="Once",
        return_logprob=True,
        logprob_start_len=0,
        token_ids_logprob=asked,
    )
    meta = answer["meta_info"]
    first, *rest = meta["input_token_ids_logprobs"]
    assert first is None
    columns = [*rest, *meta["output_token_ids_logprobs"]]
    assert len(columns) == 3 + 2
    assert all([token_id for _, token_id, _ in column] == asked for column in columns)
    # What was generated is among them.
    assert meta["output_token_ids_logprobs"][0][0] == meta["output_token_logprobs"][0]
    assert meta["output_token_ids_logprobs"][1][1] == meta["output_token_logprobs"][1]


async def test_a_prompt_can_be_read_without_generating(start: StartApi) -> None:
    bench = await start("h")
    (answer,) = await both(
        bench,
        text="Once",
        return_logprob=True,
        logprob_start_len=0,
        sampling_params={"max_new_tokens": 0},
    )
    assert len(answer["meta_info"]["input_token_logprobs"]) == 4
    assert answer["meta_info"]["output_token_logprobs"] == []
    assert answer["output_ids"] == []


async def test_nothing_is_read_unless_asked_for(start: StartApi) -> None:
    bench = await start("h")
    (answer,) = await both(bench, text="Once", logprob_start_len=0)
    assert answer["meta_info"].keys() == META
    assert bench.first_row().readout == ReadoutParams()


@pytest.mark.row("S-N-014")
@pytest.mark.parametrize("value", [True, "last"])
async def test_hidden_states_are_a_list_with_one_for_each_token(
    start: StartApi, value: Any
) -> None:
    bench = await start("ab", "c")
    answers = await both(bench, text="Once", return_hidden_states=value, sampling_params={"n": 2})
    prompt = tuple(b"Once")
    states = [answer["meta_info"]["hidden_states"] for answer in answers]
    assert states == [
        [fake_state(prompt), fake_state((*prompt, *b"a")), fake_state((*prompt, *b"ab"))],
        [fake_state(prompt), fake_state((*prompt, *b"c"))],
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "is_large"),
    [
        ({"text": "a"}, False),
        ({"text": "a", "sampling_params": {"max_new_tokens": 60}}, False),
        ({"text": "a", "sampling_params": {"max_new_tokens": 110}}, True),
        ({"text": "a" * 90, "return_logprob": True}, False),
        ({"text": "a" * 90, "return_logprob": True, "logprob_start_len": 0}, True),
        ({"text": "a" * 30, "return_logprob": True, "top_logprobs_num": 5}, True),
        ({"text": "a", "return_hidden_states": True}, True),
    ],
)
async def test_large_answers_are_made_off_the_event_loop(
    start: StartApi,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
    body: dict[str, Any],
    is_large: bool,
) -> None:
    monkeypatch.setattr("trioserve.api.off_loop.LARGE_REPLY_ITEMS", 100)
    bench = await start("x" * 40, num_pages=256)
    calls = []
    run_sync = trio.to_thread.run_sync

    async def record(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return await run_sync(*args, **kwargs)

    monkeypatch.setattr(trio.to_thread, "run_sync", record)
    params = {"ignore_eos": True, **body.get("sampling_params", {"max_new_tokens": 20})}
    answer = await generate(bench, **{**body, "sampling_params": params}, stream=stream)
    assert answer.status == 200
    assert bool(calls) == is_large
