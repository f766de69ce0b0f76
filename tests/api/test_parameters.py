"""Each parameter by itself: values that are right reach the engine, wrong ones are refused."""

from typing import Any

import orjson
import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, StartApi, body_for, with_null
from trioserve.core import SamplingParams

VALUE, TYPE = "invalid_value", "invalid_type"
VAST = int(1e30)  # more than 64 bits hold

SAMPLING: list[tuple[str, Any, str, Any]] = [
    ("temperature", 0, "temperature", 0.0),
    ("temperature", 1e-4, "temperature", 1e-4),
    ("temperature", 2, "temperature", 2.0),
    ("temperature", None, "temperature", 1.0),
    ("top_p", 1e-9, "top_p", 1e-9),
    ("top_p", 1, "top_p", 1.0),
    ("top_p", None, "top_p", 1.0),
    ("top_k", -1, "top_k", -1),
    ("top_k", 0, "top_k", 0),
    ("top_k", 1, "top_k", 1),
    ("top_k", 16.0, "top_k", 16),
    ("top_k", 1e30, "top_k", VAST),
    ("top_k", None, "top_k", -1),
    ("min_p", 0, "min_p", 0.0),
    ("min_p", 1.0, "min_p", 1.0),
    ("min_p", None, "min_p", 0.0),
    ("seed", -(2**63), "seed", -(2**63)),
    ("seed", 2**63 - 1, "seed", 2**63 - 1),
    ("seed", 7.0, "seed", 7),
    ("seed", 0, "seed", 0),
]

WRONG: list[tuple[str, Any, str, str]] = [
    *(
        (name, value, f"{name} must be a number", TYPE)
        for name in ("temperature", "top_p", "min_p")
        for value in ("0.5", True, [], {})
    ),
    *(
        (name, value, f"{name} must be an integer", TYPE)
        for name in ("top_k", "seed", "n", "max_tokens", "max_completion_tokens")
        for value in ("1", True, 16.5, [], {})
    ),
    *(
        (name, value, f"{name} must be a boolean", TYPE)
        for name in ("stream", "ignore_eos")
        for value in (0, 1, "true", [])
    ),
    ("temperature", -1, "temperature must be non-negative", VALUE),
    ("temperature", -1e-9, "temperature must be non-negative", VALUE),
    ("temperature", 2.01, "temperature must be between 0 and 2", VALUE),
    ("temperature", 1e308, "temperature must be between 0 and 2", VALUE),
    ("top_p", 0, "top_p must be in (0, 1]", VALUE),
    ("top_p", -0.5, "top_p must be in (0, 1]", VALUE),
    ("top_p", 1.1, "top_p must be in (0, 1]", VALUE),
    ("top_k", -2, "top_k must be -1 (disabled) or at least 1", VALUE),
    ("top_k", -1e30, "top_k must be -1 (disabled) or at least 1", VALUE),
    ("min_p", -0.1, "min_p must be in [0, 1]", VALUE),
    ("min_p", 1.1, "min_p must be in [0, 1]", VALUE),
    ("n", 0, "n must be between 1 and 128", VALUE),
    ("n", -1, "n must be between 1 and 128", VALUE),
    ("n", 129, "n must be between 1 and 128", VALUE),
    ("n", 1e30, "n must be between 1 and 128", VALUE),
    ("seed", 2**63, "seed must be a 64-bit integer", VALUE),
    ("seed", 1e30, "seed must be a 64-bit integer", VALUE),
    ("seed", -1e30, "seed must be a 64-bit integer", VALUE),
    ("max_completion_tokens", 0, "max_completion_tokens must be at least 1", VALUE),
    ("max_completion_tokens", -1, "max_completion_tokens must be at least 1", VALUE),
    ("stop", "", "stop sequences cannot be empty", VALUE),
    ("stop", [""], "stop sequences cannot be empty", VALUE),
    ("stop", ["a", ""], "stop sequences cannot be empty", VALUE),
    ("stop", ["a"] * 65, "at most 64 stop sequences are allowed", VALUE),
    ("stop", 5, "stop must be a string or an array", TYPE),
    ("stop", True, "stop must be a string or an array", TYPE),
    ("stop", {"a": 1}, "stop must be a string or an array", TYPE),
    ("stream_options", 1, "stream_options must be an object", TYPE),
    ("stream_options", [], "stream_options must be an object", TYPE),
    ("stream_options", "all", "stream_options must be an object", TYPE),
    ("model", 5, "model must be a string", TYPE),
    ("model", ["org/fake"], "model must be a string", TYPE),
]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("name", "value", "attribute", "expected"), SAMPLING)
async def test_a_sampling_parameter_reaches_the_engine(
    start: StartApi, path: str, name: str, value: Any, attribute: str, expected: Any
) -> None:
    bench = await start("a")
    answer = await bench.post(path, **{name: value})
    assert answer.status == 200, answer.body
    assert getattr(bench.sampling(), attribute) == expected
    others = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    for other, default in others.items():
        assert other == attribute or getattr(bench.sampling(), other) == default


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("name", "value", "message", "code"), WRONG)
async def test_a_wrong_value_is_refused_by_name(
    start: StartApi, path: str, name: str, value: Any, message: str, code: str
) -> None:
    bench = await start("a")
    answer = await bench.post(path, **{name: value})
    check_error(answer, 400, f"Invalid request: {message}", code=code, param=name)
    assert not bench.runner.plans


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 2**64, -(2**64), 10**30])
async def test_a_seed_is_not_rounded_into_the_range(start: StartApi, path: str, seed: int) -> None:
    """The parser makes a float of what 64 bits do not hold: the one below the range fits."""
    bench = await start("a")
    body = orjson.dumps(body_for(path))[:-1] + f', "seed": {seed}}}'.encode()
    answer = await bench.post_raw(path, body)
    message = "Invalid request: seed must be a 64-bit integer"
    check_error(answer, 400, message, code=VALUE, param="seed")


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_element_or_member_of_the_wrong_type_is_named(
    start: StartApi, path: str, stream: bool
) -> None:
    bench = await start("a")
    for fields, where, kind in (
        ({"stop": ["a", 5]}, "stop[1]", "a string"),
        ({"stop": [None]}, "stop[0]", "a string"),
        *(
            ({"stream_options": {name: 1}}, f"stream_options.{name}", "a boolean")
            for name in ("include_usage", "continuous_usage_stats", "include_obfuscation")
        ),
    ):
        answer = await bench.post(path, stream=stream, **fields)
        check_error(answer, 400, f"Invalid request: {where} must be {kind}", code=TYPE, param=where)


async def test_the_least_max_tokens_differs_between_the_endpoints(start: StartApi) -> None:
    bench = await start("a")
    for path, value, message in (
        (COMPLETIONS, -1, "max_tokens must be at least 0"),
        (COMPLETIONS, -1e30, "max_tokens must be at least 0"),
        (COMPLETIONS, 0, "max_tokens must be at least 1 unless echo is true"),
        (CHAT, -1, "max_tokens must be at least 1"),
        (CHAT, 0, "max_tokens must be at least 1"),
    ):
        answer = await bench.post(path, max_tokens=value)
        check_error(answer, 400, f"Invalid request: {message}", code=VALUE, param="max_tokens")


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("fields", "num_tokens"),
    [
        ({}, 16),
        ({"max_tokens": None, "max_completion_tokens": None}, 16),
        ({"max_tokens": 3}, 3),
        ({"max_tokens": 3.0}, 3),
        ({"max_completion_tokens": 5}, 5),
        ({"max_tokens": 3, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 3}, 3),
    ],
)
async def test_max_completion_tokens_wins_over_max_tokens_and_both_over_16(
    start: StartApi, path: str, fields: dict[str, Any], num_tokens: int
) -> None:
    bench = await start("x" * 99)
    answer = await bench.post(path, **fields)
    assert answer.texts() == ["x" * num_tokens]
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert answer.json()["usage"]["completion_tokens"] == num_tokens


@pytest.mark.parametrize(("setting", "num_tokens"), [("7", 7), ("context", 236)])
async def test_the_chat_default_is_a_setting_and_completions_keep_16(
    start: StartApi, setting: str, num_tokens: int
) -> None:
    bench = await start("x" * 999, default_max_tokens=setting)
    assert len((await bench.post(CHAT)).texts()[0]) == num_tokens  # 256 less the prompt's 20
    assert len((await bench.post(CHAT, messages=None, prompt="a")).texts()[0]) in (7, 255)
    assert len((await bench.post(COMPLETIONS)).texts()[0]) == 16


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_null_everywhere_is_the_same_as_leaving_everything_out(
    start: StartApi, path: str
) -> None:
    names = """
        max_tokens max_completion_tokens temperature top_p top_k min_p n seed stop ignore_eos stream
        stream_options user metadata store best_of suffix echo logprobs top_logprobs logit_bias
        frequency_penalty presence_penalty repetition_penalty min_tokens stop_token_ids stop_regex
        no_stop_trim skip_special_tokens response_format json_schema regex ebnf tools tool_choice
        parallel_tool_calls lora_path rid priority cache_salt return_hidden_states modalities audio
        functions function_call web_search_options input_embeds custom_logit_processor moderation
        use_beam_search return_routed_experts return_cached_tokens_details reasoning_effort
        chat_template_kwargs continue_final_message prediction service_tier
    """.split()
    bench = await start("text")
    answers = [await bench.post(path), await bench.post(path, **with_null(names))]
    first, second = (answer.json() for answer in answers)
    for reply in (first, second):
        del reply["id"], reply["created"]
    assert first == second
    assert bench.sampling() == SamplingParams(seed=bench.sampling().seed)


async def test_without_a_seed_each_request_draws_its_own(start: StartApi) -> None:
    bench = await start("a")
    for _ in range(2):
        assert (await bench.post(COMPLETIONS)).status == 200
    seeds = {row.sampling.seed for plan in bench.runner.plans for row in plan.rows}
    assert len(seeds) == 2


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_n_choices_differ_and_a_seed_repeats_the_ordered_list(
    start: StartApi, path: str
) -> None:
    """Case 35: n copies of one choice."""
    bench = await start()
    first = await bench.post(path, n=4, seed=7, temperature=1)
    again = await bench.post(path, n=4, seed=7, temperature=1)
    assert len(set(first.texts())) == 4
    assert first.texts() == again.texts()
    rows = [row for plan in bench.runner.plans for row in plan.rows]
    assert {row.sampling.seed for row in rows} == {7}
    assert {row.sample_index for row in rows} == {0, 1, 2, 3}
    # The prompt is counted once, every choice's tokens all the same.
    usage = first.json()["usage"]
    assert usage["prompt_tokens"] == len(bench.first_row().sequence.prompt_ids)
    assert usage["completion_tokens"] == 4 * 16


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_128_choices_are_served(start: StartApi, path: str) -> None:
    bench = await start("ab", num_pages=1024)
    answer = await bench.post(path, n=128)
    assert answer.texts() == ["ab"] * 128
    bench.check_idle()
