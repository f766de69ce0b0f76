"""Each parameter by itself: values that are right reach the engine, wrong ones are refused."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, StartApi, with_null
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


@pytest.mark.row("S-C-008", "S-C-009", "S-C-010", "S-C-011", "S-C-013")
@pytest.mark.row("S-H-010", "S-H-011", "S-H-012", "S-H-037")
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


@pytest.mark.row("S-N-028")
async def test_the_most_logprobs_are_a_setting(start: StartApi) -> None:
    bench = await start("a", max_logprobs=3)
    for path, right, wrong, message in (
        (COMPLETIONS, {"logprobs": 3}, {"logprobs": 4}, "logprobs must be an integer between"),
        (
            CHAT,
            {"logprobs": True, "top_logprobs": 3},
            {"logprobs": True, "top_logprobs": 4},
            "top_logprobs must be between",
        ),
    ):
        assert (await bench.post(path, **right)).status == 200
        answer = await bench.post(path, **wrong)
        (param,) = set(wrong) - {"logprobs"} or {"logprobs"}
        expected = f"Invalid request: {message} 0 and 3"
        check_error(answer, 400, expected, code=VALUE, param=param)


@pytest.mark.row("S-C-031")
@pytest.mark.case(38)
async def test_best_of_is_at_least_n_and_never_streamed(start: StartApi) -> None:
    bench = await start("a", "b", "c")
    for fields, message in (
        ({"n": 2, "best_of": 1}, "best_of must be greater than or equal to n"),
        ({"best_of": 2, "stream": True}, "best_of cannot be used with stream"),
    ):
        answer = await bench.post(COMPLETIONS, **fields)
        check_error(answer, 400, f"Invalid request: {message}", code=VALUE, param="best_of")
    assert not bench.runner.plans
    for fields in ({"best_of": None}, {"best_of": 1.0}, {"best_of": 1, "stream": True}):
        assert (await bench.post(COMPLETIONS, **fields)).texts() == ["a"], fields


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
