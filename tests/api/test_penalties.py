"""Penalties, bias and the other sampling parameters: from the body to what is drawn."""

from typing import Any

import pytest

from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, PROMPT, RENDERED, StartApi
from trioserve.core import SamplingParams
from trioserve.testing.fake_model import continuation

PARAMETERS: list[tuple[str, Any, Any]] = [
    ("frequency_penalty", -2, -2.0),
    ("frequency_penalty", 0.5, 0.5),
    ("presence_penalty", 2, 2.0),
    ("presence_penalty", -0.25, -0.25),
    ("repetition_penalty", 1e-3, 1e-3),
    ("repetition_penalty", 2, 2.0),
    ("logit_bias", {"97": 100, "0": -100, "256": 0.5}, ((97, 100.0), (0, -100.0), (256, 0.5))),
    ("logit_bias", {}, ()),
]


@pytest.mark.row("S-C-016", "S-C-017", "S-C-018", "S-C-030", "S-H-015", "S-H-016", "S-H-037")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("name", "value", "expected"), PARAMETERS)
async def test_what_is_asked_for_is_what_the_sampler_is_given(
    start: StartApi, path: str, name: str, value: Any, expected: Any
) -> None:
    bench = await start("ab")
    assert (await bench.post(path, seed=7, **{name: value})).status == 200
    assert bench.sampling() == SamplingParams(seed=7, **{name: expected})


@pytest.mark.row("S-C-016", "S-C-017", "S-C-018", "S-H-015", "S-H-016", "S-H-037")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty", "repetition_penalty"])
async def test_a_penalty_keeps_a_model_from_saying_anything_twice(
    start: StartApi, path: str, name: str
) -> None:
    bench = await start()
    (plain,) = (await bench.post(path, max_tokens=18)).texts()
    assert len(set(plain)) < 18, "this prompt proves nothing: nothing is said twice"
    (text,) = (await bench.post(path, max_tokens=18, **{name: 2})).texts()
    assert len(set(text)) == 18
    if name == "repetition_penalty":
        # Tokens of the prompt count too.
        assert not set(text) & set(PROMPT if path == COMPLETIONS else RENDERED)


@pytest.mark.row("S-C-030", "S-H-037")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bias_bans_and_forces(start: StartApi, path: str, stream: bool) -> None:
    bench = await start()
    (plain,) = (await bench.post(path, max_tokens=20)).texts()
    answer = await bench.post(
        path, max_tokens=20, stream=stream, logit_bias={str(ord(plain[0])): -100}
    )
    assert plain[0] not in answer.texts()[0]
    answer = await bench.post(path, max_tokens=3, stream=stream, logit_bias={str(ord("!")): 100})
    assert answer.texts() == ["!!!"]


@pytest.mark.row("S-C-013", "S-H-037")
@pytest.mark.case(35)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_samples_of_a_seed_differ_from_each_other_and_not_between_requests(
    start: StartApi, path: str
) -> None:
    """Case 35: n copies of one text."""
    bench = await start()
    first = await bench.post(path, n=4, seed=7, max_tokens=12)
    second = await bench.post(path, n=4, seed=7, max_tokens=12, stream=True)
    assert len(set(first.texts())) == 4
    assert first.texts() == second.texts()
    rows = {row.sample_index: row.sampling.seed for plan in bench.runner.plans for row in plan.rows}
    assert rows == {0: 7, 1: 7, 2: 7, 3: 7}


async def test_samples_of_several_prompts_are_numbered_through(start: StartApi) -> None:
    bench = await start()
    answer = await bench.post(COMPLETIONS, prompt=["x", "y"], n=2, seed=1, max_tokens=5)
    assert answer.texts() == [
        bytes(continuation(tuple(prompt), 5, index)).decode()
        for index, prompt in enumerate([b"x", b"x", b"y", b"y"])
    ]


async def test_a_request_without_a_seed_gets_one_of_its_own(start: StartApi) -> None:
    bench = await start("a")
    for _ in range(3):
        await bench.post(CHAT)
    seeds = {row.sampling.seed for plan in bench.runner.plans for row in plan.rows}
    assert len(seeds) == 3
