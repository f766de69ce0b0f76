"""`sampling_params` of `/generate`: where they go, their defaults, and what is refused."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import StartApi
from tests.api.native import both, generate
from trioserve.core import ReadoutParams, SamplingParams
from trioserve.testing.fake_text import EOS_ID


@pytest.mark.row("S-N-014")
async def test_sampling_params_reach_the_model_by_their_own_names(start: StartApi) -> None:
    bench = await start("x")
    sampling = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "sampling_seed": -5,
        "frequency_penalty": 0.25,
        "presence_penalty": -0.25,
        "repetition_penalty": 1.5,
        "logit_bias": {"65": 3, "66": -100},
        "max_new_tokens": 50,
        "min_new_tokens": 0,
    }
    assert (await generate(bench, text="Once", sampling_params=sampling)).status == 200
    assert bench.sampling() == SamplingParams(
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        seed=-5,
        frequency_penalty=0.25,
        presence_penalty=-0.25,
        repetition_penalty=1.5,
        logit_bias=((65, 3.0), (66, -100.0)),
    )


@pytest.mark.row("S-N-014")
async def test_the_defaults_are_the_contracts(start: StartApi) -> None:
    bench = await start("x" * 300, max_model_len=1000, num_pages=500)
    for sampling in ({}, {"sampling_params": None}, {"sampling_params": {"max_new_tokens": None}}):
        reply = (await generate(bench, text="Once", **sampling)).json()
        assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 128}
    drawn = bench.sampling()
    assert drawn == SamplingParams(seed=drawn.seed)
    sequence = bench.first_row().sequence
    assert (sequence.min_tokens, sequence.end_ids) == (0, frozenset({EOS_ID}))
    assert sequence.readout == ReadoutParams()


async def test_a_default_limit_is_cut_to_the_context_and_an_explicit_one_is_refused(
    start: StartApi,
) -> None:
    bench = await start("x" * 300, max_model_len=100)
    reply = (await generate(bench, text="a" * 90)).json()
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 10}
    answer = await generate(bench, text="a" * 90, sampling_params={"max_new_tokens": 11})
    message = (
        "This model's maximum context length is 100 tokens. However, you requested 101 tokens "
        "(90 in the prompt, 11 in the completion)."
    )
    check_error(answer, 400, message, code="context_length_exceeded", param="max_new_tokens")
    for prompt, name in (("a" * 100, "text"), ([97] * 100, "input_ids")):
        answer = await generate(bench, **{name: prompt})
        message = (
            "This model's maximum context length is 100 tokens. "
            "However, your prompt has 100 tokens."
        )
        check_error(answer, 400, message, code="context_length_exceeded", param=name)
    # One that is only read may fill the context.
    params = {"max_new_tokens": 0}
    assert (await generate(bench, input_ids=[97] * 100, sampling_params=params)).status == 200


@pytest.mark.row("S-N-014")
async def test_each_prompt_may_have_its_own_sampling_params(start: StartApi) -> None:
    bench = await start("abcdef")
    sampling = [{"max_new_tokens": 2}, {"stop": "d"}, {"sampling_seed": 3}]
    answers = await both(bench, text=["p", "q", "r"], sampling_params=sampling)
    assert [answer["text"] for answer in answers] == ["ab", "abc", "abcdef"]


@pytest.mark.row("S-E-001")
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -1, "temperature must be non-negative"),
        ("temperature", 2.1, "temperature must be between 0 and 2"),
        ("temperature", "1", "temperature must be a number"),
        ("top_p", 0, "top_p must be in (0, 1]"),
        ("top_k", -2, "top_k must be -1 (disabled) or at least 1"),
        ("min_p", 1.1, "min_p must be in [0, 1]"),
        ("n", 0, "n must be between 1 and 128"),
        ("n", 129, "n must be between 1 and 128"),
        ("sampling_seed", 2**63, "sampling_seed must be a 64-bit integer"),
        ("frequency_penalty", 3, "frequency_penalty must be between -2 and 2"),
        ("presence_penalty", -3, "presence_penalty must be between -2 and 2"),
        ("repetition_penalty", 0, "repetition_penalty must be in (0, 2]"),
        ("logit_bias", {"1": 101}, "logit_bias values must be between -100 and 100"),
        ("logit_bias", {"257": 1}, "logit_bias keys must be token ids in [0, 256]"),
        ("max_new_tokens", -1, "max_new_tokens must be at least 0"),
        ("max_new_tokens", 1.5, "max_new_tokens must be an integer"),
        ("min_new_tokens", -1, "min_new_tokens must be in [0, max_new_tokens]"),
        ("min_new_tokens", 129, "min_new_tokens must be in [0, max_new_tokens]"),
        ("stop", "", "stop sequences cannot be empty"),
        ("stop", 5, "stop must be a string or an array"),
        ("stop_token_ids", [257], "stop_token_ids must be token ids in [0, 256]"),
        ("ignore_eos", 1, "ignore_eos must be a boolean"),
        ("regex", "(", "regex could not be compiled: a missing ) at position 1"),
        ("json_schema", 5, "json_schema must be a string or an object"),
        ("json_schema", "[", "json_schema is not valid JSON: …"),
        ("ebnf", "", "ebnf could not be compiled: it is empty"),
        (
            "structural_tag",
            "x",
            "structural_tag is not supported by this server version; leave it out",
        ),
    ],
)
@pytest.mark.parametrize("is_list", [False, True])
async def test_a_sampling_parameter_that_is_wrong_is_named(
    start: StartApi, name: str, value: Any, message: str, is_list: bool
) -> None:
    bench = await start("x")
    params = {name: value}
    body = {"text": ["a", "b"], "sampling_params": [{}, params]} if is_list else {"text": "a"}
    if name == "n" and is_list:
        body["sampling_params"] = [params, params]
    answer = await generate(bench, **{"sampling_params": params, **body})
    assert answer.status == 400
    expected, got = f"Invalid request: {message}", answer.json()["message"]
    assert got.startswith(expected[:-1]) if message.endswith("…") else got == expected
    assert answer.json()["param"] == name
    assert not bench.runner.plans
