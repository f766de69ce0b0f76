"""The answers of everything that does not generate text, as JSON Schema."""

from trioserve.api.openapi.shapes import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    INTEGER,
    NULL,
    NUMBER,
    STRING,
    an_array,
    an_object,
    described,
    one_of,
    or_null,
    ref,
)
from trioserve.api.schema.kinds import JsonSchema

_ERROR_MEMBERS = {"message": STRING, "type": STRING, "param": {"type": ["string", "null"]}}

_SERVER_CONFIG = an_object(
    {
        "max_running_requests": COUNT,
        "max_queued_requests": or_null(COUNT),
        "page_size": or_null(COUNT),
        "max_total_tokens": COUNT,
        "chunked_prefill_size": COUNT,
        "enable_cache_report": BOOLEAN,
        "enable_lora": BOOLEAN,
        "tool_call_parser": STRING,
        "reasoning_parser": STRING,
    }
)

OTHER_REPLIES: dict[str, JsonSchema] = {
    "Error": an_object(
        {
            "object": one_of("error"),
            **_ERROR_MEMBERS,
            "code": described(INTEGER, "The HTTP status."),
            "error": an_object(
                {**_ERROR_MEMBERS, "code": described(STRING, "A short name of the kind of error.")}
            ),
        },
        doc="Every answer that is not 2xx; `param` names the field that is wrong.",
    ),
    "Status": an_object({"status": one_of("ok")}),
    "Model": an_object(
        {
            "id": STRING,
            "object": one_of("model"),
            "created": INTEGER,
            "owned_by": STRING,
            "root": described(STRING, "The model's path."),
            "parent": {"type": ["string", "null"]},
            "max_model_len": described(COUNT, "Most tokens of prompt and output together."),
        }
    ),
    "ModelList": an_object({"object": one_of("list"), "data": an_array(ref("Model"))}),
    "ModelInfo": an_object(
        {
            "model_path": STRING,
            "tokenizer_path": STRING,
            "served_model_name": STRING,
            "is_generation": BOOLEAN,
            "preferred_sampling_params": NULL,
            "weight_version": STRING,
            "model_type": STRING,
            "architectures": an_array(STRING),
            "max_model_len": COUNT,
            "vocab_size": COUNT,
            "dtype": STRING,
            "has_image_understanding": BOOLEAN,
            "has_audio_understanding": BOOLEAN,
            "server_config": _SERVER_CONFIG,
        }
    ),
    "ServerInfo": {
        **an_object(
            {
                "model_path": STRING,
                "served_model_name": STRING,
                "version": STRING,
                "dp_size": COUNT,
                "tp_size": COUNT,
                "max_total_num_tokens": COUNT,
                "max_total_tokens": COUNT,
                "max_running_requests": COUNT,
                "max_prefill_tokens": COUNT,
                "internal_states": an_array({"type": "object"}),
            },
            doc="Every setting that is no secret, and what became of it.",
        ),
        "additionalProperties": ANYTHING,
    },
    "Load": an_array(
        an_object(
            {
                "dp_rank": COUNT,
                "num_reqs": described(COUNT, "Running and waiting."),
                "num_waiting_reqs": COUNT,
                "num_tokens": described(COUNT, "Held or waiting."),
            }
        )
    ),
    "Loads": an_object(
        {
            "timestamp": described(NUMBER, "Unix seconds."),
            "version": STRING,
            "loads": an_array(
                an_object(
                    {
                        "dp_rank": COUNT,
                        "num_running_reqs": COUNT,
                        "num_waiting_reqs": COUNT,
                        "num_used_tokens": COUNT,
                        "max_total_num_tokens": COUNT,
                        "token_usage": described(NUMBER, "From 0 to 1."),
                        "cache_hit_rate": described(NUMBER, "From 0 to 1."),
                        "gen_throughput": described(NUMBER, "Tokens a second."),
                        "max_running_requests": COUNT,
                    }
                )
            ),
        }
    ),
    "Tokens": an_object(
        {
            "tokens": {"anyOf": [an_array(COUNT), an_array(an_array(COUNT))]},
            "count": {"anyOf": [COUNT, an_array(COUNT)]},
            "max_model_len": COUNT,
        }
    ),
    "TokenText": an_object({"text": {"anyOf": [STRING, an_array(STRING)]}}),
    "EmbeddingList": an_object(
        {
            "object": one_of("list"),
            "model": STRING,
            "data": an_array(
                an_object(
                    {
                        "object": one_of("embedding"),
                        "index": COUNT,
                        "embedding": {
                            "anyOf": [
                                an_array(NUMBER),
                                described(STRING, "Base64 of little-endian 32-bit floats."),
                            ]
                        },
                    }
                )
            ),
            "usage": an_object({"prompt_tokens": COUNT, "total_tokens": COUNT}),
        }
    ),
}
