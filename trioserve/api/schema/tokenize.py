"""The bodies of `POST /tokenize` and `POST /detokenize`."""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.declare import param, read_object, required
from trioserve.api.schema.generation import ModelName
from trioserve.api.schema.ignored import note_unknown
from trioserve.api.schema.kinds import AnyObject, Boolean, Text
from trioserve.api.schema.messages import Messages
from trioserve.api.schema.one_or_many import OneOrMany, OneOrManyOf, TokenIdArray
from trioserve.api.schema.tools import Tools

_MODEL = "A served name, or the model path; the server's own model if left out."


@frozen(kw_only=True)
class TokenizeBody:
    """Text to tokenize, as prompts or as a conversation."""

    model: str | None = param(ModelName(), None, _MODEL)
    prompt: OneOrMany | None = param(
        OneOrManyOf(Text(), str, "a string or an array"), None, "The text, or several."
    )
    messages: tuple[dict[str, Any], ...] | None = param(
        Messages(), None, "A conversation, put into text by the chat template."
    )
    add_special_tokens: bool | None = param(
        Boolean(),
        None,
        "Add what the tokenizer puts around a text (BOS, if any); true for prompt if left out, and "
        "false for messages, whose template writes it itself.",
    )
    chat_template_kwargs: dict[str, Any] = param(
        AnyObject(), {}, "More variables for the chat template."
    )
    tools: tuple[dict[str, Any], ...] = param(
        Tools(), (), "Functions that the model may call; for the chat template."
    )


@frozen(kw_only=True)
class DetokenizeBody:
    """Token ids to put into text."""

    model: str | None = param(ModelName(), None, _MODEL)
    tokens: OneOrMany = required(
        OneOrManyOf(TokenIdArray(), list, "an array"),
        "The token ids of one text, or of several.",
        "tokens is required",
    )
    skip_special_tokens: bool = param(Boolean(), True, "Leave special tokens out of the text.")


def parse_tokenize(body: dict[str, Any]) -> TokenizeBody:
    """Raises RequestError for the first thing that is wrong."""
    request = read_object(TokenizeBody, body)
    note_unknown(TokenizeBody, body)
    return request


def parse_detokenize(body: dict[str, Any]) -> DetokenizeBody:
    """Raises RequestError for the first thing that is wrong."""
    request = read_object(DetokenizeBody, body)
    note_unknown(DetokenizeBody, body)
    return request


def check_tokenize_rules(body: TokenizeBody) -> None:
    """Raise RequestError unless there is one thing to tokenize."""
    if body.prompt is not None and body.messages is not None:
        raise invalid("only one of messages or prompt may be provided", "prompt")
    if body.prompt is None and body.messages is None:
        raise invalid(
            "either messages or prompt must be provided", "prompt", "missing_required_parameter"
        )
