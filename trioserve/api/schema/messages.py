"""Chat messages as clients send them, checked and brought into the form templates take."""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid, quoted
from trioserve.api.schema.kinds import JsonSchema, Kind, Text, wrong_type
from trioserve.api.schema.limits import Limits

_ROLES = ("system", "developer", "user", "assistant", "tool")
_MEDIA = ("image_url", "input_audio", "video_url", "file")
_NAMES = {
    "name": "Who speaks; for the chat template.",
    "tool_call_id": "Which call a tool answers; for the chat template.",
    "reasoning_content": "What the assistant thought; for the chat template.",
}


@frozen
class Messages(Kind):
    """A conversation; read into the form that templates take."""

    def read(self, value: Any, name: str) -> tuple[dict[str, Any], ...]:
        """See Kind. The error names the message and part that is wrong."""
        if not isinstance(value, list):
            raise wrong_type(name, "an array")
        if not value:
            raise invalid(f"{name} cannot be empty", name)
        return tuple(_read_message(message, f"{name}[{i}]") for i, message in enumerate(value))

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind. Roles are read in any case, which the schema does not say."""
        others = _message_schema((*(role for role in _ROLES if role != "assistant"), "function"))
        assistant = _message_schema(("assistant",))
        assistant["properties"]["content"] = _content_schema("text", "refusal")
        calling = _message_schema(("assistant",))
        calling["properties"]["content"] = {
            "anyOf": [*assistant["properties"]["content"]["anyOf"], {"type": "null"}],
            "description": "The words beside the calls, if any.",
        }
        calling["properties"]["tool_calls"] = {
            **_CALLS_SCHEMA,
            "type": "array",
            "minItems": 1,
        }
        calling["required"] = ["role", "tool_calls"]
        items = {"anyOf": [others, assistant, calling]}
        return {"type": "array", "items": items, "minItems": 1}


def _read_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise wrong_type(where, "an object")
    role = message.get("role")
    role = role.lower() if isinstance(role, str) else None
    role = "tool" if role == "function" else role
    if role not in _ROLES:
        raise invalid(f"{where}.role must be one of {', '.join(_ROLES)}", f"{where}.role")
    calls = _read_calls(message.get("tool_calls"), f"{where}.tool_calls")
    read: dict[str, Any] = {"role": role}
    if role == "assistant" and calls:
        read["tool_calls"] = calls
    read["content"] = _read_content(message, role, where)
    if read["content"] is None and "tool_calls" not in read:
        raise wrong_type(f"{where}.content", "a string or an array of content parts")
    for name in _NAMES:
        if message.get(name) is not None:
            read[name] = Text().read(message[name], f"{where}.{name}")
    return read


def _read_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise wrong_type(where, "an array")
    return [_read_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _read_call(call: Any, where: str) -> dict[str, Any]:
    """A call with what templates read of one; its arguments are JSON text, or meant to be."""
    if not isinstance(call, dict):
        raise wrong_type(where, "an object")
    if call.get("type", "function") != "function":
        raise invalid(f"{where}.type must be function", f"{where}.type")
    function = call.get("function")
    if not isinstance(function, dict):
        raise wrong_type(f"{where}.function", "an object")
    name, arguments = (
        Text().read(function.get(key, default), f"{where}.function.{key}")
        for key, default in (("name", None), ("arguments", ""))
    )
    read = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if call.get("id") is not None:
        read["id"] = Text().read(call["id"], f"{where}.id")
    return read


def _read_content(
    message: dict[str, Any], role: str, where: str
) -> str | list[dict[str, str]] | None:
    """None where there is none, which calls make up for."""
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content
    if not isinstance(content, list):
        raise wrong_type(f"{where}.content", "a string or an array of content parts")
    kinds = ("text", "refusal") if role == "assistant" else ("text",)
    return [_read_part(part, kinds, f"{where}.content[{i}]") for i, part in enumerate(content)]


def _read_part(part: Any, kinds: tuple[str, ...], where: str) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _MEDIA:
        raise invalid(
            f"{where}: {kind} input is not supported by this model", where, "unsupported_parameter"
        )
    if kind not in kinds:
        shown = quoted(kind) if isinstance(kind, str) else "missing"
        raise invalid(f"{where}: unknown content part type {shown}", where)
    # Templates know text alone; a refusal is what the assistant said.
    return {"type": "text", "text": Text().read(part.get(kind), f"{where}.{kind}")}


_CALLS_SCHEMA: JsonSchema = {
    "type": ["array", "null"],
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": ["string", "null"]},
            "type": {"const": "function"},
            "function": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "arguments": {"type": "string", "description": "JSON, as text."},
                },
                "required": ["name"],
            },
        },
        "required": ["function"],
    },
    "description": "Calls that the assistant made; for the chat template.",
}


def _message_schema(roles: tuple[str, ...]) -> JsonSchema:
    names = {name: {"type": ["string", "null"], "description": doc} for name, doc in _NAMES.items()}
    return {
        "type": "object",
        "properties": {
            "role": {
                "type": "string",
                "enum": list(roles),
                "description": "Upper and lower case are the same.",
            },
            "content": _content_schema("text"),
            **names,
            "tool_calls": _CALLS_SCHEMA,
        },
        "required": ["role", "content"],
    }


def _content_schema(*kinds: str) -> JsonSchema:
    parts = [
        {
            "type": "object",
            "properties": {"type": {"const": kind}, kind: {"type": "string"}},
            "required": ["type", kind],
        }
        for kind in kinds
    ]
    part = parts[0] if len(parts) == 1 else {"anyOf": parts}
    return {
        "anyOf": [{"type": "string"}, {"type": "array", "items": part}],
        "description": "The text, or parts of it.",
    }
