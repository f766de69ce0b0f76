"""Candidates: which are returned, in what order, and who pays."""

from math import fsum
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.api.answers import check_error
from tests.api.kit import COMPLETIONS, PROMPT, StartApi
from trioserve.core import ReadoutParams
from trioserve.testing.fake_readout import fake_token_logprobs
from trioserve.testing.fake_text import EOS_ID

SCRIPTS = ("abc", "q", "xyzxyz", "", "hello")


def mean_logprob(script: str, prompt: str = PROMPT) -> float:
    """What the model gives a candidate, its end included."""
    ids = (*prompt.encode(), *script.encode(), EOS_ID)
    logprobs = [
        fake_token_logprobs(ids[:position], ids[position], ReadoutParams()).logprob
        for position in range(len(prompt), len(ids))
    ]
    return fsum(logprobs) / len(logprobs)


@pytest.mark.row("S-C-031")
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("logprobs", [None, 0, 2])
async def test_the_likeliest_candidates_are_returned_best_first(
    start: StartApi, n: int, logprobs: int | None
) -> None:
    bench = await start(*SCRIPTS)
    answer = await bench.post(COMPLETIONS, n=n, best_of=5, logprobs=logprobs)
    best = sorted(SCRIPTS, key=mean_logprob, reverse=True)[:n]
    assert answer.texts() == best
    choices = answer.json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(n))
    for choice, script in zip(choices, best, strict=True):
        if logprobs is None:
            assert choice["logprobs"] is None
        else:
            assert choice["logprobs"]["tokens"] == [*script, "<eos>"]
    bench.check_idle()


@pytest.mark.row("S-C-031")
async def test_all_candidates_are_billed_and_the_prompt_once(start: StartApi) -> None:
    bench = await start(*SCRIPTS)
    answer = await bench.post(COMPLETIONS, n=2, best_of=5)
    assert answer.json()["usage"] == {
        "prompt_tokens": len(PROMPT),
        "completion_tokens": sum(len(script) + 1 for script in SCRIPTS),
        "total_tokens": len(PROMPT) + sum(len(script) + 1 for script in SCRIPTS),
        "prompt_tokens_details": None,
    }


@pytest.mark.row("S-C-031")
async def test_each_prompt_has_candidates_of_its_own(start: StartApi) -> None:
    bench = await start("a", "bb", "ccc", "d", "ee", "fff")
    answer = await bench.post(COMPLETIONS, prompt=["x", "y"], n=2, best_of=3, echo=True)
    first = sorted(("a", "bb", "ccc"), key=lambda text: mean_logprob(text, "x"), reverse=True)
    second = sorted(("d", "ee", "fff"), key=lambda text: mean_logprob(text, "y"), reverse=True)
    assert answer.texts() == [*("x" + text for text in first[:2]), *("y" + t for t in second[:2])]


async def test_of_equal_candidates_the_lower_number_comes_first(start: StartApi) -> None:
    # Equal tokens, and so equal numbers; only their states could differ, and do not either.
    bench = await start("same", "same", "same")
    answer = await bench.post(COMPLETIONS, n=2, best_of=3, logprobs=0)
    first, second = answer.json()["choices"]
    assert first["logprobs"] == second["logprobs"]
    assert [first["index"], second["index"]] == [0, 1]


async def test_a_candidate_without_a_token_comes_last(
    start: StartApi, autojump_clock: MockClock
) -> None:
    """One that was aborted before its first step."""
    bench = await start(
        "abcdef", is_automatic=False, max_running_requests=1, request_timeout=5.0, depth=1
    )

    async def run_some_steps() -> None:
        for _ in range(3):
            await bench.finish_step()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_some_steps)
        answer = await bench.post(COMPLETIONS, n=1, best_of=2)
    assert answer.json()["choices"][0]["finish_reason"] == "abort"
    assert answer.texts()[0] != ""


@pytest.mark.case(38)
@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({}, ["abc"]),
        ({"best_of": None}, ["abc"]),
        ({"best_of": 1}, ["abc"]),
        # As many candidates as choices: nothing is ranked, so a stream can do it as well.
        ({"best_of": 3, "n": 3}, ["abc", "q", "xyzxyz"]),
        ({"best_of": 3, "n": 3, "stream": True}, ["abc", "q", "xyzxyz"]),
    ],
)
async def test_as_many_candidates_as_choices_is_no_ranking(
    start: StartApi, fields: dict[str, Any], texts: list[str]
) -> None:
    bench = await start(*SCRIPTS)
    assert (await bench.post(COMPLETIONS, **fields)).texts() == texts
    assert bench.first_row().readout == ReadoutParams()


@pytest.mark.row("S-C-031")
@pytest.mark.case(38)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"best_of": 1, "n": 2}, "best_of must be greater than or equal to n"),
        ({"best_of": 0}, "best_of must be greater than or equal to n"),
        ({"best_of": 2, "stream": True}, "best_of cannot be used with stream"),
    ],
)
async def test_candidates_that_cannot_be_are_refused(
    start: StartApi, fields: dict[str, Any], message: str
) -> None:
    bench = await start(*SCRIPTS)
    answer = await bench.post(COMPLETIONS, **fields)
    error = f"Invalid request: {message}"
    check_error(answer, 400, error, code="invalid_value", param="best_of")
