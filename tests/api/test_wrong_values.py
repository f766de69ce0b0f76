"""Values that no parameter takes, and the exact words in which each is refused."""

from typing import Any

import orjson
import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, StartApi, body_for

VALUE, TYPE = "invalid_value", "invalid_type"

WRONG: list[tuple[str, Any, str, str]] = [
    *(
        (name, value, f"{name} must be a number", TYPE)
        for name in (
            *("temperature", "top_p", "min_p"),
            *("frequency_penalty", "presence_penalty", "repetition_penalty"),
        )
        for value in ("0.5", True, [], {})
    ),
    *(
        (name, value, f"{name} must be an integer", TYPE)
        for name in (
            *("top_k", "seed", "n", "max_tokens", "max_completion_tokens", "min_tokens"),
            *("best_of", "priority"),
        )
        for value in ("1", True, 16.5, [], {})
    ),
    *(
        (name, value, f"{name} must be a boolean", TYPE)
        for name in (
            *("stream", "ignore_eos", "no_stop_trim", "skip_special_tokens"),
            *("return_hidden_states", "return_routed_experts", "return_cached_tokens_details"),
        )
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
    *(("cache_salt", value, "cache_salt must be a string", TYPE) for value in (5, True, [], {})),
    ("stream_options", 1, "stream_options must be an object", TYPE),
    ("stream_options", [], "stream_options must be an object", TYPE),
    ("stream_options", "all", "stream_options must be an object", TYPE),
    *(
        (name, value, f"{name} must be between -2 and 2", VALUE)
        for name in ("frequency_penalty", "presence_penalty")
        for value in (-2.01, 2.01, 1e308, -1e30)
    ),
    ("repetition_penalty", 0, "repetition_penalty must be in (0, 2]", VALUE),
    ("repetition_penalty", -1, "repetition_penalty must be in (0, 2]", VALUE),
    ("repetition_penalty", 2.01, "repetition_penalty must be in (0, 2]", VALUE),
    ("logit_bias", [], "logit_bias must be an object", TYPE),
    ("logit_bias", {"5": 100.1}, "logit_bias values must be between -100 and 100", VALUE),
    ("logit_bias", {"5": -100.1}, "logit_bias values must be between -100 and 100", VALUE),
    *(
        ("logit_bias", {key: 1}, "logit_bias keys must be token ids in [0, 256]", VALUE)
        for key in ("257", "-1", "a", "", "1.0", " 1", "+1", "٣", "1" * 5000)
    ),
    ("min_tokens", -1, "min_tokens must be in [0, max_tokens]", VALUE),
    ("min_tokens", 17, "min_tokens must be in [0, max_tokens]", VALUE),
    ("min_tokens", 1e30, "min_tokens must be in [0, max_tokens]", VALUE),
    ("stop_token_ids", 5, "stop_token_ids must be an array", TYPE),
    ("stop_token_ids", "5", "stop_token_ids must be an array", TYPE),
    ("stop_token_ids", [257], "stop_token_ids must be token ids in [0, 256]", VALUE),
    ("stop_token_ids", [5, -1], "stop_token_ids must be token ids in [0, 256]", VALUE),
    ("stop_token_ids", [1e30], "stop_token_ids must be token ids in [0, 256]", VALUE),
    ("rid", "", "rid cannot be empty", VALUE),
    ("rid", "r" * 129, "rid must have at most 128 characters", VALUE),
    ("rid", 5, "rid must be a string", TYPE),
    ("rid", ["r"], "rid must be a string", TYPE),
    ("return_hidden_states", "first", "return_hidden_states must be a boolean", TYPE),
    ("model", 5, "model must be a string", TYPE),
    ("model", ["org/fake"], "model must be a string", TYPE),
]

WRONG_ON_COMPLETIONS: list[tuple[str, Any, str, str]] = [
    *(("echo", value, "echo must be a boolean", TYPE) for value in (0, "true", [])),
    *(("logprobs", value, "logprobs must be an integer", TYPE) for value in (True, "1", 0.5, [])),
    *(
        ("logprobs", value, "logprobs must be an integer between 0 and 20", VALUE)
        for value in (-1, 21, 1e30)
    ),
    ("best_of", 0, "best_of must be greater than or equal to n", VALUE),
    ("best_of", -1, "best_of must be greater than or equal to n", VALUE),
    ("best_of", 129, "best_of must be between n and 128", VALUE),
    ("suffix", 5, "suffix must be a string", TYPE),
    ("suffix", ["a"], "suffix must be a string", TYPE),
]

WRONG_ON_CHAT: list[tuple[str, Any, str, str]] = [
    *(("logprobs", value, "logprobs must be a boolean", TYPE) for value in (0, 1, "true", [])),
    *(
        ("top_logprobs", value, "top_logprobs must be an integer", TYPE)
        for value in (True, "1", 0.5, [])
    ),
    *(
        ("top_logprobs", value, "top_logprobs must be between 0 and 20", VALUE)
        for value in (-1, 21, 25, 10**9)
    ),
    ("top_logprobs", 1, "top_logprobs requires logprobs to be true", VALUE),
    ("chat_template_kwargs", [], "chat_template_kwargs must be an object", TYPE),
    ("chat_template_kwargs", "{}", "chat_template_kwargs must be an object", TYPE),
    *(
        ("continue_final_message", value, "continue_final_message must be a boolean", TYPE)
        for value in (0, "true")
    ),
    ("reasoning_effort", 5, "reasoning_effort must be a string", TYPE),
    *(
        (
            "reasoning_effort",
            value,
            "reasoning_effort must be none, minimal, low, medium, high, xhigh or max",
            VALUE,
        )
        for value in ("", "HIGH", "most")
    ),
]


@pytest.mark.row("S-E-001", "S-N-001")
@pytest.mark.case(34, 38, 41, 53, 61)
@pytest.mark.parametrize(
    ("path", "name", "value", "message", "code"),
    [
        *((path, *row) for path in ENDPOINTS for row in WRONG),
        *((COMPLETIONS, *row) for row in WRONG_ON_COMPLETIONS),
        *((CHAT, *row) for row in WRONG_ON_CHAT),
    ],
)
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
        ({"stop_regex": ["a", 5]}, "stop_regex[1]", "a string"),
        ({"stop_token_ids": [1, "a"]}, "stop_token_ids[1]", "an integer"),
        ({"stop_token_ids": [1.5]}, "stop_token_ids[0]", "an integer"),
        ({"logit_bias": {"5": "a"}}, "logit_bias.5", "a number"),
        ({"logit_bias": {"5": True}}, "logit_bias.5", "a number"),
        ({"logit_bias": {"<b>": None}}, "logit_bias", "a number"),
        *(
            ({"stream_options": {name: 1}}, f"stream_options.{name}", "a boolean")
            for name in ("include_usage", "continuous_usage_stats", "include_obfuscation")
        ),
    ):
        answer = await bench.post(path, stream=stream, **fields)
        check_error(answer, 400, f"Invalid request: {where} must be {kind}", code=TYPE, param=where)
