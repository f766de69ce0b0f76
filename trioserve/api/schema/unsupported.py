"""Parameters that the API knows and this version does not serve.

A value that asks for nothing (null, or what the API documents as the default) is accepted, because
routers and SDKs send explicit defaults. Anything else is refused: ignoring it would mislead. A
parameter leaves this file when it is built.
"""

from typing import Any

import orjson
from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.declare import param
from trioserve.api.schema.ignored import IgnoredFields
from trioserve.api.schema.kinds import JsonSchema, Kind
from trioserve.api.schema.limits import Limits
from trioserve.errors import RequestError

NOT_BUILT = "is not supported by this server version; leave it out"
NO_LORA = "An adapter's name or path. LoRA is not enabled."
NOT_ON_CHAT = "is not supported on chat completions"


def _refusal(name: str, reason: str = NOT_BUILT) -> RequestError:
    return invalid(f"{name} {reason}", name, "unsupported_parameter")


@frozen
class Unbuilt(Kind):
    """A field that may only ask for nothing: one of `harmless`, or null."""

    harmless: tuple[Any, ...]
    reason: str = NOT_BUILT

    def read(self, value: Any, name: str) -> None:
        """See Kind."""
        if not any(_is_same(value, accepted) for accepted in self.harmless):
            raise _refusal(name, self.reason)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        if not self.harmless:
            return {"type": "null"}
        return {"anyOf": [_schema_of(value) for value in self.harmless]}


@frozen
class Modalities(Kind):
    """`text`, alone or in an array."""

    def read(self, value: Any, name: str) -> None:
        """See Kind."""
        kinds = value if isinstance(value, list) else [value]
        if any(kind != "text" for kind in kinds):
            raise _refusal(name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"anyOf": [{"const": "text"}, {"type": "array", "items": {"const": "text"}}]}


@frozen
class NoAdapter(Kind):
    """An array that names no adapter; one may be given for each prompt."""

    def read(self, value: Any, name: str) -> None:
        """See Kind."""
        if not isinstance(value, list) or any(path is not None for path in value):
            raise invalid(
                "LoRA is not enabled; start the server with --enable-lora or --lora-paths",
                name,
                "lora_not_available",
            )

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "array", "items": {"type": "null"}}


def _shown(value: Any) -> str:
    return orjson.dumps(value).decode()


def unbuilt(doc: str, *harmless: Any) -> Any:
    """A field that asks for what is not built."""
    values = "".join(f"`{_shown(value)}` or " for value in harmless)
    doc = f"{doc} Not supported yet: only {values}null."
    return param(Unbuilt(harmless), None, doc, is_served=False)


def never_on_chat(doc: str, harmless: Any) -> Any:
    """A field of completions that chat completions refuse."""
    kind = Unbuilt((harmless,), NOT_ON_CHAT)
    doc = f"{doc} Not on chat completions: only `{_shown(harmless)}` or null."
    return param(kind, None, doc, is_served=False)


@frozen(kw_only=True)
class UnsupportedFields(IgnoredFields):
    """What both generation endpoints know and do not serve, beside what they ignore."""

    lora_path: None = param(NoAdapter(), None, NO_LORA, is_served=False)
    modalities: None = param(
        Modalities(), None, "Kinds of output; only text is served.", is_served=False
    )
    return_token_ids: None = unbuilt("Report token ids.", False)
    return_prompt_token_ids: None = unbuilt("Report the prompt's token ids.", False)
    audio: None = unbuilt("Audio output.")
    functions: None = unbuilt("The older form of `tools`.")
    function_call: None = unbuilt("The older form of `tool_choice`.")
    web_search_options: None = unbuilt("Web search.")
    input_embeds: None = unbuilt("Embeddings instead of a prompt.")
    custom_logit_processor: None = unbuilt("Code that runs in the server.")
    use_beam_search: None = unbuilt("Beam search.", False)
    moderation: None = unbuilt("Moderation of the output.")


def _is_same(value: Any, accepted: Any) -> bool:
    if isinstance(value, dict):  # a null inside is as good as nothing, too
        value = {name: inner for name, inner in value.items() if inner is not None}
    # 0 is not False here: types are checked as strictly as where the parameter is built.
    return bool(value == accepted) and isinstance(value, bool) == isinstance(accepted, bool)


def _schema_of(accepted: Any) -> JsonSchema:
    if not isinstance(accepted, dict):
        return {"const": accepted}
    return {
        "type": "object",
        "properties": {name: {"const": value} for name, value in accepted.items()},
        "required": list(accepted),
        "additionalProperties": {"type": "null"},
    }
