"""Fields of `/generate`: what is refused, and what means nothing."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import StartApi
from tests.api.native import generate


@pytest.mark.row("S-N-014", "S-E-001")
@pytest.mark.parametrize(
    ("body", "message", "code", "param"),
    [
        ({}, "either text or input_ids must be provided", "missing_required_parameter", "text"),
        (
            {"text": "a", "input_ids": [1]},
            "only one of text or input_ids may be provided",
            "invalid_value",
            "input_ids",
        ),
        ({"text": 5}, "text must be a string or an array", "invalid_type", "text"),
        ({"text": {}}, "text must be a string or an array", "invalid_type", "text"),
        ({"text": ["a", 5]}, "text[1] must be a string", "invalid_type", "text[1]"),
        ({"text": ["a", ["b"]]}, "text[1] must be a string", "invalid_type", "text[1]"),
        ({"text": ""}, "Prompt cannot be empty", "invalid_value", "text"),
        ({"text": []}, "Prompt cannot be empty", "invalid_value", "text"),
        ({"text": ["a", ""]}, "Prompt cannot be empty", "invalid_value", "text[1]"),
        ({"input_ids": "a"}, "input_ids must be an array", "invalid_type", "input_ids"),
        ({"input_ids": []}, "Prompt cannot be empty", "invalid_value", "input_ids"),
        ({"input_ids": [[1], []]}, "Prompt cannot be empty", "invalid_value", "input_ids[1]"),
        (
            {"input_ids": [1, "a"]},
            "input_ids[1] must be an integer",
            "invalid_type",
            "input_ids[1]",
        ),
        ({"input_ids": [1.5]}, "input_ids[0] must be an integer", "invalid_type", "input_ids[0]"),
        ({"input_ids": [True]}, "input_ids[0] must be an integer", "invalid_type", "input_ids[0]"),
        ({"input_ids": [[1], 2]}, "input_ids[1] must be an array", "invalid_type", "input_ids[1]"),
        (
            {"input_ids": [1, 257]},
            "input_ids contains token id 257 outside [0, 256]",
            "invalid_value",
            "input_ids",
        ),
        (
            {"input_ids": [[1], [-1]]},
            "input_ids contains token id -1 outside [0, 256]",
            "invalid_value",
            "input_ids",
        ),
        (
            {"text": ["a"] * 6},
            "text has 6 entries, the limit is 5",
            "invalid_value",
            "text",
        ),
        (
            {"input_ids": [[1]] * 6},
            "input_ids has 6 entries, the limit is 5",
            "invalid_value",
            "input_ids",
        ),
        (
            {"text": "a", "sampling_params": 1},
            "sampling_params must be an object or an array",
            "invalid_type",
            "sampling_params",
        ),
        (
            {"text": "a", "sampling_params": []},
            "sampling_params cannot be empty",
            "invalid_value",
            "sampling_params",
        ),
        (
            {"text": ["a"], "sampling_params": [1]},
            "sampling_params[0] must be an object",
            "invalid_type",
            "sampling_params[0]",
        ),
        (
            {"text": ["a", "b"], "sampling_params": [{}]},
            "sampling_params must have one entry for each prompt",
            "invalid_value",
            "sampling_params",
        ),
        (
            {"text": ["a", "b"], "sampling_params": [{}, {"n": 2}]},
            "n must be the same in all sampling_params",
            "invalid_value",
            "sampling_params",
        ),
        ({"text": "a", "rid": 5}, "rid must be a string or an array", "invalid_type", "rid"),
        ({"text": "a", "rid": ""}, "rid cannot be empty", "invalid_value", "rid"),
        ({"text": "a", "rid": []}, "rid cannot be empty", "invalid_value", "rid"),
        (
            {"text": ["a", "b"], "rid": ["x"]},
            "rid must have one entry for each prompt",
            "invalid_value",
            "rid",
        ),
        (
            {"text": ["a", "b"], "rid": ["x", "x"]},
            "rid must have different entries",
            "invalid_value",
            "rid",
        ),
        ({"text": "a", "stream": 1}, "stream must be a boolean", "invalid_type", "stream"),
        (
            {"text": "a", "return_logprob": "yes"},
            "return_logprob must be a boolean",
            "invalid_type",
            "return_logprob",
        ),
        (
            {"text": "a", "logprob_start_len": -2},
            "logprob_start_len must be at least -1",
            "invalid_value",
            "logprob_start_len",
        ),
        (
            {"text": "abc", "logprob_start_len": 4, "return_logprob": True},
            "logprob_start_len must be at most 3, the prompt's length",
            "invalid_value",
            "logprob_start_len",
        ),
        (
            {"text": "a", "top_logprobs_num": 21, "return_logprob": True},
            "top_logprobs_num must be between 0 and 20",
            "invalid_value",
            "top_logprobs_num",
        ),
        (
            {"text": "a", "top_logprobs_num": 1},
            "top_logprobs_num requires return_logprob to be true",
            "invalid_value",
            "top_logprobs_num",
        ),
        (
            {"text": "a", "token_ids_logprob": [1]},
            "token_ids_logprob requires return_logprob to be true",
            "invalid_value",
            "token_ids_logprob",
        ),
        (
            {"text": "a", "token_ids_logprob": [257], "return_logprob": True},
            "token_ids_logprob must be token ids in [0, 256]",
            "invalid_value",
            "token_ids_logprob",
        ),
        (
            {"text": "a", "token_ids_logprob": [1] * 129, "return_logprob": True},
            "token_ids_logprob has 129 entries, the limit is 128",
            "invalid_value",
            "token_ids_logprob",
        ),
        (
            {"text": "a", "lora_path": "x"},
            "LoRA is not enabled; start the server with --enable-lora or --lora-paths",
            "lora_not_available",
            "lora_path",
        ),
        (
            {"text": "a", "image_data": "http://x"},
            "image_data is not supported by this server version; leave it out",
            "unsupported_parameter",
            "image_data",
        ),
    ],
)
async def test_a_field_that_is_wrong_is_named(
    start: StartApi, body: dict[str, Any], message: str, code: str, param: str
) -> None:
    bench = await start("x", max_prompts_per_request=5)
    answer = await generate(bench, **body)
    check_error(answer, 400, f"Invalid request: {message}", code=code, param=param)
    assert not bench.runner.plans


@pytest.mark.row("S-N-014")
async def test_nulls_and_unknown_fields_mean_nothing(start: StartApi) -> None:
    """Routers write a body anew with all the fields that they know."""
    bench = await start("x")
    nulls = dict.fromkeys(
        [
            *("input_ids", "sampling_params", "rid", "return_logprob", "logprob_start_len"),
            *("top_logprobs_num", "token_ids_logprob", "return_text_in_logprobs", "stream"),
            *("return_hidden_states", "lora_path", "image_data", "session_params", "modalities"),
            *("input_embeds", "custom_logit_processor", "unknown"),
        ]
    )
    answer = await generate(bench, text="a", model="any", bootstrap_room=5, **nulls)
    assert answer.json()["text"] == "x"
    params = dict.fromkeys(("temperature", "stop", "n", "max_new_tokens", "json_schema", "odd"))
    answer = await generate(bench, text="a", sampling_params={**params, "odd": 1})
    assert answer.json()["text"] == "x"
