"""What may be said against a body that fits its schema, for whoever documents the API."""

from trioserve.api.schema.abort import AbortBody
from trioserve.api.schema.chat import ChatBody
from trioserve.api.schema.completions import CompletionBody
from trioserve.api.schema.embeddings import EmbeddingBody
from trioserve.api.schema.native_generate import NativeGenerateBody
from trioserve.api.schema.native_rules import MIN_NEW_TOKENS, NATIVE_RULES
from trioserve.api.schema.native_rules import NO_TOKEN_LEFT as NO_NATIVE_TOKEN_LEFT
from trioserve.api.schema.rules import (
    CHAT_RULES,
    COMPLETION_RULES,
    MIN_TOKENS,
    NO_TOKEN_LEFT,
    Rule,
)
from trioserve.api.schema.structured import FORMAT_TYPE, SCHEMA_REQUIRED
from trioserve.api.schema.tokenize import DetokenizeBody, TokenizeBody

_RULES: dict[type, tuple[Rule, ...]] = {
    CompletionBody: COMPLETION_RULES,
    ChatBody: CHAT_RULES,
    NativeGenerateBody: NATIVE_RULES,
}

_CONTEXT = "This model's maximum context length is … tokens. However, …"
_TEMPLATE = (
    "chat template error: …",
    "this model has no chat template; use prompt or start the server with --chat-template",
)
_STRUCTURED = (
    "json_schema is not valid JSON: …",
    "json_schema could not be compiled: …",
    "regex could not be compiled: …",
    "ebnf could not be compiled: …",
)
_FORMAT = (
    FORMAT_TYPE,
    "response_format.type structural_tag is not supported by this server version",
    SCHEMA_REQUIRED,
)
_GENERATION = (
    *_STRUCTURED,
    "logit_bias keys must be token ids in [0, …]",
    "stop_regex is not a valid regular expression: …",
    "stop_regex takes too long to search for in the generated text",
    "rid '…' is already in use",
    "Prompt cannot be empty",
    "return_hidden_states is not supported by this model",
    "the model '…' does not support generation",
    _CONTEXT,
    "… exceeds the cache capacity of … tokens",
)

# They depend on the model, on the server or on other requests. Each `…` stands for some text.
_FURTHER: dict[type, tuple[str, ...]] = {
    CompletionBody: (
        *_FORMAT,
        MIN_TOKENS,
        NO_TOKEN_LEFT,
        "suffix requires a text prompt",
        *_GENERATION,
    ),
    ChatBody: (
        *_FORMAT,
        MIN_TOKENS,
        NO_TOKEN_LEFT,
        "chat_template_kwargs cannot set …",
        "tool '…' not found in tools",
        "tools could not be compiled: …",
        "tool_choice is not supported by this server version; leave it out",
        "tools[…].function.parameters is not a valid JSON schema: …",
        "continue_final_message requires the last message to be the assistant's",
        *_TEMPLATE,
        *_GENERATION,
    ),
    NativeGenerateBody: (
        MIN_NEW_TOKENS,
        NO_NATIVE_TOKEN_LEFT,
        "logprob_start_len must be at most …",
        *_GENERATION,
    ),
    EmbeddingBody: (
        "dimensions must be …",
        "this model does not support the dimensions parameter",
        "input cannot be empty",
        "input[…] cannot be empty",
        "the model '…' does not support embeddings",
        _CONTEXT,
    ),
    TokenizeBody: (
        "only one of messages or prompt may be provided",
        "either messages or prompt must be provided",
        "tools[…].function.parameters is not a valid JSON schema: …",
        "chat_template_kwargs cannot set …",
        *_TEMPLATE,
    ),
    DetokenizeBody: (),
    AbortBody: ("rid is required unless abort_all is true",),
}


def refusals_of(cls: type) -> tuple[str, ...]:
    """The messages, each behind `Invalid request: ` unless it is about the context's length."""
    return (*(rule.message for rule in _RULES.get(cls, ())), *_FURTHER[cls])
