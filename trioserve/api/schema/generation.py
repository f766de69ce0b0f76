"""What the bodies of completions and chat have in common."""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.declare import ObjectOf, param, required
from trioserve.api.schema.kinds import (
    INT64_MAX,
    INT64_MIN,
    AnyInteger,
    Boolean,
    Integer,
    JsonSchema,
    Kind,
    Number,
    OneOrMore,
    Text,
    wrong_type,
)
from trioserve.api.schema.limits import Limits
from trioserve.api.schema.patterns import Patterns
from trioserve.api.schema.structured import StructuredFields
from trioserve.api.schema.tokens import LogitBias, StopTokenIds

MAX_SAMPLES = 128
MAX_STOPS = 64
MAX_STOP_REGEXES = 16
MAX_STOP_REGEX_CHARS = 1024
MAX_RID_CHARS = 128
MAX_SALT_CHARS = 128

MODEL_REQUIRED = "model is required"


@frozen
class ModelName(Kind):
    """The name of a model, kept as sent because the reply repeats it."""

    def read(self, value: Any, name: str) -> str:
        """See Kind."""
        if not isinstance(value, str):
            raise wrong_type(name, "a string")
        if not value.strip():
            raise invalid(MODEL_REQUIRED, name, "missing_required_parameter")
        return value

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "string", "pattern": r"\S"}


@frozen
class BooleanOrLast(Kind):
    """A boolean; `"last"` is true."""

    def read(self, value: Any, name: str) -> bool:
        """See Kind."""
        if value == "last":
            return True
        return Boolean().read(value, name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"anyOf": [{"type": "boolean"}, {"const": "last"}]}


@frozen(kw_only=True)
class StreamOptions:
    """What a stream says about usage."""

    include_usage: bool = param(Boolean(), False, "Send a last chunk with the request's usage.")
    continuous_usage_stats: bool = param(
        Boolean(), False, "Send the choice's running usage with every chunk."
    )
    include_obfuscation: bool = param(Boolean(), False, "Accepted without effect.")


def penalty(name: str, doc: str) -> Any:
    """A penalty in [-2, 2]."""
    return param(Number(-2, 2, f"{name} must be between -2 and 2"), 0.0, doc)


@frozen(kw_only=True)
class GenerationBody(StructuredFields):
    """Fields of both endpoints, by their names in the API."""

    model: str = required(ModelName(), "A served name, or the model path.", MODEL_REQUIRED)
    max_completion_tokens: int | None = param(
        Integer(1, None, "max_completion_tokens must be at least 1"),
        None,
        "Most tokens generated for each choice; wins over max_tokens.",
    )
    temperature: float = param(
        Number(
            0,
            2,
            "temperature must be between 0 and 2",
            below="temperature must be non-negative",
        ),
        1.0,
        "Divides the logits; 0 takes the most likely token.",
    )
    top_p: float = param(
        Number(0, 1, "top_p must be in (0, 1]", is_low_open=True),
        1.0,
        "Draw from the smallest set of most likely tokens whose probability reaches this.",
    )
    top_k: int = param(
        Integer(-1, None, "top_k must be -1 (disabled) or at least 1"),
        -1,
        "Draw from the k most likely tokens; -1 or 0 is off.",
    )
    min_p: float = param(
        Number(0, 1, "min_p must be in [0, 1]"),
        0.0,
        "Drop tokens less likely than this share of the most likely one's probability.",
    )
    seed: int | None = param(
        Integer(INT64_MIN, INT64_MAX, "seed must be a 64-bit integer"),
        None,
        "Makes sampling repeatable.",
    )
    n: int = param(
        Integer(1, MAX_SAMPLES, f"n must be between 1 and {MAX_SAMPLES}"), 1, "Choices a prompt."
    )
    frequency_penalty: float = penalty(
        "frequency_penalty", "Subtracted from a token's logit for each time it was generated."
    )
    presence_penalty: float = penalty(
        "presence_penalty", "Subtracted from the logit of every token that was generated."
    )
    repetition_penalty: float = param(
        Number(0, 2, "repetition_penalty must be in (0, 2]", is_low_open=True),
        1.0,
        "Divides positive logits of tokens seen in prompt or output, multiplies negative ones.",
    )
    logit_bias: tuple[tuple[int, float], ...] = param(
        LogitBias(), (), "From token ids to what is added to their logits."
    )
    min_tokens: int = param(
        Integer(0, None, "min_tokens must be in [0, max_tokens]"),
        0,
        "Nothing stops a choice before so many tokens.",
    )
    ignore_eos: bool = param(Boolean(), False, "The model's end tokens do not stop a choice.")
    stop: tuple[str, ...] = param(
        OneOrMore(
            Text(empty="stop sequences cannot be empty"),
            MAX_STOPS,
            f"at most {MAX_STOPS} stop sequences are allowed",
        ),
        (),
        "Texts that end a choice.",
    )
    stop_token_ids: tuple[int, ...] = param(StopTokenIds(), (), "Tokens that end a choice.")
    stop_regex: tuple[str, ...] = param(
        Patterns(MAX_STOP_REGEXES, MAX_STOP_REGEX_CHARS),
        (),
        "Patterns (Python's `regex` package) that end a choice. What may still become a match is "
        "held back from a stream; an empty match ends nothing.",
    )
    no_stop_trim: bool = param(Boolean(), False, "Keep in the text what stopped the choice.")
    skip_special_tokens: bool = param(Boolean(), True, "Leave special tokens out of the text.")
    stream: bool = param(Boolean(), False, "Answer with server-sent events.")
    stream_options: StreamOptions | None = param(
        ObjectOf(StreamOptions), None, "What a stream reports beside the text."
    )
    rid: str | None = param(
        Text(empty="rid cannot be empty", max_chars=MAX_RID_CHARS),
        None,
        "The reply's id, and the handle for aborting it.",
    )
    return_hidden_states: bool = param(
        BooleanOrLast(), False, "Report the final hidden state of each choice's last token."
    )
    # No model with experts is served, and for any other the contract wants the field left out of
    # the reply: true and false are served alike.
    return_routed_experts: bool = param(
        Boolean(),
        False,
        "Report the experts that tokens were routed to, if the model has any; none has.",
        is_served=False,
    )
    return_cached_tokens_details: bool = param(
        Boolean(),
        False,
        "Report how many prompt tokens were cached, in `usage` and by where they came from in "
        "`sglext`.",
    )
    cache_salt: str | None = param(
        Text(max_chars=MAX_SALT_CHARS),
        None,
        "Requests share what was computed for their prompts only with those of the same salt.",
    )
    priority: int = param(
        AnyInteger(),
        0,
        "Higher ones are served first, if the server runs with --enable-priority; else without "
        "effect.",
    )

    @property
    def prompt_param(self) -> str:
        """The field that the prompt comes from."""
        return "prompt"
