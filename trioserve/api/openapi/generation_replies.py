"""The answers of completions and chat, whole and streamed, as JSON Schema."""

from trioserve.api.openapi.shapes import (
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
from trioserve.api.reply_shape import TOOL_CALLS
from trioserve.api.schema.kinds import JsonSchema
from trioserve.core import FinishReason

_FINISH_REASON = described(
    one_of(*map(str, FinishReason)),
    "`stop` for an end token or a stop sequence, `length` for the token limit, `abort` for an "
    "abort or a shutdown.",
)
_MATCHED_STOP = described(
    {"type": ["integer", "string", "null"]},
    "What stopped the choice: a token id, a stop string or a pattern; null for anything else.",
)
_CHAT_FINISH_REASON = described(
    one_of(*map(str, FinishReason), TOOL_CALLS),
    "`stop` for an end token or a stop sequence, `tool_calls` if the reply called tools, `length` "
    "for the token limit, `abort` for an abort or a shutdown.",
)
_REASONING = described(STRING, "What the model thought, where the server looks for that.")
_CALL_ID = described(STRING, "To be sent back with the tool's answer, as `tool_call_id`.")
_CALLED = {"name": STRING, "arguments": described(STRING, "A JSON object, as text.")}
_CALL = an_object({"id": _CALL_ID, "type": one_of("function"), "function": an_object(_CALLED)})
_CALL_DELTA = an_object(
    {
        "index": described(COUNT, "Which call of the message."),
        "function": an_object({}, _CALLED),
    },
    {"id": _CALL_ID, "type": one_of("function")},
    doc="The first of a call has its id, type and name; all have a piece of its arguments.",
)
_INDEX = described(COUNT, "The prompt's index times n, plus the sample's.")
_HIDDEN = described(an_array(NUMBER), "The final hidden state, if it was asked for.")
_HEAD = {
    "id": described(STRING, "The request's `rid`, or a new id."),
    "created": described(INTEGER, "Unix seconds."),
    "model": described(STRING, "The model's name as it was sent."),
}
_USAGE_SOMETIMES = {
    "usage": described(
        or_null(ref("Usage")), "Where `stream_options` says so, else absent or null."
    )
}
_SGLEXT = {
    "sglext": an_object(
        {
            "cached_tokens_details": an_object(
                {
                    "device": described(COUNT, "Taken from pages of the device."),
                    "host": described(COUNT, "Taken from the host's memory."),
                },
                {
                    "storage": described(COUNT, "Taken from storage, where there is any."),
                    "storage_backend": STRING,
                },
                doc="Tokens of the first prompt that were cached.",
            )
        },
        doc="If `return_cached_tokens_details` asked for it.",
    )
}


def _finished(
    choice: dict[str, JsonSchema], finish_reason: JsonSchema = _FINISH_REASON
) -> JsonSchema:
    return an_object(
        {
            "index": _INDEX,
            **choice,
            "finish_reason": finish_reason,
            "matched_stop": _MATCHED_STOP,
        },
        {"hidden_states": _HIDDEN},
    )


def _streamed(
    choice: dict[str, JsonSchema],
    sometimes: dict[str, JsonSchema] | None = None,
    finish_reason: JsonSchema = _FINISH_REASON,
) -> JsonSchema:
    return an_object(
        {
            "index": _INDEX,
            **choice,
            "finish_reason": described(or_null(finish_reason), "Null until the last chunk."),
        },
        {"matched_stop": described(_MATCHED_STOP, "In the last chunk alone."), **(sometimes or {})},
    )


_CHAT_TOKEN = {
    "token": STRING,
    "logprob": NUMBER,
    "bytes": described(or_null(an_array(INTEGER)), "Null for a special token."),
}

_ENTRY = {
    "type": "array",
    "prefixItems": [{"type": ["number", "null"]}, INTEGER, {"type": ["string", "null"]}],
    "minItems": 3,
    "maxItems": 3,
    "description": "Logprob, token id and text.",
}
_ENTRIES = an_array(_ENTRY)
_ENTRIES_OF_EACH = an_array(or_null(_ENTRIES))
_NATIVE = {
    "text": STRING,
    "output_ids": an_array(COUNT),
    "meta_info": an_object(
        {
            "id": STRING,
            "finish_reason": or_null(
                an_object(
                    {"type": _FINISH_REASON},
                    {"matched": _MATCHED_STOP, "length": COUNT, "message": STRING},
                )
            ),
            "prompt_tokens": COUNT,
            "completion_tokens": COUNT,
            "cached_tokens": COUNT,
            "weight_version": STRING,
        },
        {
            "e2e_latency": described(NUMBER, "Seconds, once it has ended."),
            "hidden_states": an_array(an_array(NUMBER)),
            "input_token_logprobs": _ENTRIES,
            "input_top_logprobs": _ENTRIES_OF_EACH,
            "input_token_ids_logprobs": _ENTRIES_OF_EACH,
            "output_token_logprobs": _ENTRIES,
            "output_top_logprobs": _ENTRIES_OF_EACH,
            "output_token_ids_logprobs": _ENTRIES_OF_EACH,
        },
    ),
}

GENERATION_REPLIES: dict[str, JsonSchema] = {
    "Usage": an_object(
        {
            "prompt_tokens": described(COUNT, "Each prompt counts once."),
            "completion_tokens": described(
                COUNT, "All generated tokens, those not shown included."
            ),
            "total_tokens": COUNT,
            "prompt_tokens_details": or_null(an_object({"cached_tokens": COUNT})),
        },
        {
            "completion_tokens_details": an_object({"reasoning_tokens": COUNT}),
            "reasoning_tokens": described(COUNT, "Where the server looks for reasoning."),
        },
    ),
    "CompletionLogprobs": an_object(
        {
            "tokens": an_array(STRING),
            "token_logprobs": an_array({"type": ["number", "null"]}),
            "top_logprobs": an_array(
                {"type": ["object", "null"], "additionalProperties": {"type": "number"}}
            ),
            "text_offset": an_array(COUNT),
        },
        doc="Four arrays with one entry a token; the first token of an echoed prompt has nulls.",
    ),
    "ChatLogprobs": an_object(
        {
            "content": an_array(
                an_object({**_CHAT_TOKEN, "top_logprobs": an_array(an_object(_CHAT_TOKEN))})
            ),
            "refusal": NULL,
        }
    ),
    "Completion": an_object(
        {
            **_HEAD,
            "object": one_of("text_completion"),
            "choices": an_array(
                _finished({"text": STRING, "logprobs": or_null(ref("CompletionLogprobs"))})
            ),
            "usage": ref("Usage"),
        },
        _SGLEXT,
    ),
    "CompletionChunk": an_object(
        {
            **_HEAD,
            "object": one_of("text_completion"),
            "choices": an_array(
                _streamed(
                    {"text": STRING, "logprobs": or_null(ref("CompletionLogprobs"))},
                    {"hidden_states": _HIDDEN},
                )
            ),
        },
        _USAGE_SOMETIMES | _SGLEXT,
    ),
    "ChatCompletion": an_object(
        {
            **_HEAD,
            "object": one_of("chat.completion"),
            "choices": an_array(
                _finished(
                    {
                        "message": an_object(
                            {
                                "role": one_of("assistant"),
                                "content": described(
                                    {"type": ["string", "null"]},
                                    "Null if there is nothing but calls.",
                                ),
                                "refusal": NULL,
                            },
                            {"reasoning_content": _REASONING, "tool_calls": an_array(_CALL)},
                        ),
                        "logprobs": or_null(ref("ChatLogprobs")),
                    },
                    _CHAT_FINISH_REASON,
                )
            ),
            "usage": ref("Usage"),
        },
        _SGLEXT,
    ),
    "ChatCompletionChunk": an_object(
        {
            **_HEAD,
            "object": one_of("chat.completion.chunk"),
            "choices": an_array(
                _streamed(
                    {
                        "delta": an_object(
                            {},
                            {
                                "role": one_of("assistant"),
                                "content": STRING,
                                "reasoning_content": _REASONING,
                                "tool_calls": an_array(_CALL_DELTA),
                                "hidden_states": _HIDDEN,
                            },
                        ),
                        "logprobs": or_null(ref("ChatLogprobs")),
                    },
                    finish_reason=_CHAT_FINISH_REASON,
                )
            ),
        },
        _USAGE_SOMETIMES | _SGLEXT,
    ),
    "NativeSample": an_object(_NATIVE, _SGLEXT),
    "NativeReply": {"anyOf": [ref("NativeSample"), an_array(ref("NativeSample"))]},
    "NativeEvent": an_object(
        _NATIVE,
        {**_SGLEXT, "index": described(COUNT, "Whose event it is, where there are several.")},
    ),
}
