"""Chat messages as clients send them, checked and brought into the form templates take."""

from typing import Any

from trioserve.api.errors import invalid, quoted
from trioserve.errors import RequestError

_ROLES = ("system", "developer", "user", "assistant", "tool")
_MEDIA = ("image_url", "input_audio", "video_url", "file")


def parse_messages(value: Any) -> tuple[dict[str, Any], ...]:
    """Raises RequestError naming the message and part that is wrong."""
    if not isinstance(value, list):
        raise invalid("messages must be an array", "messages", "invalid_type")
    if not value:
        raise invalid("messages cannot be empty", "messages")
    return tuple(_parse_message(message, f"messages[{i}]") for i, message in enumerate(value))


def _parse_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise invalid(f"{where} must be an object", where, "invalid_type")
    role = message.get("role")
    role = role.lower() if isinstance(role, str) else None
    role = "tool" if role == "function" else role
    if role not in _ROLES:
        raise invalid(f"{where}.role must be one of {', '.join(_ROLES)}", f"{where}.role")
    if message.get("tool_calls"):
        raise invalid(
            f"{where}.tool_calls is not supported by this server version; leave it out",
            f"{where}.tool_calls",
            "unsupported_parameter",
        )
    parsed: dict[str, Any] = {"role": role, "content": _parse_content(message, role, where)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        text = message.get(name)
        if text is None:
            continue
        if not isinstance(text, str):
            raise invalid(f"{where}.{name} must be a string", f"{where}.{name}", "invalid_type")
        parsed[name] = text
    return parsed


def _parse_content(message: dict[str, Any], role: str, where: str) -> str | list[dict[str, str]]:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(
            f"{where}.content must be a string or an array of content parts",
            f"{where}.content",
            "invalid_type",
        )
    kinds = ("text", "refusal") if role == "assistant" else ("text",)
    return [
        _parse_part(part, kinds, f"{where}.content[{index}]") for index, part in enumerate(content)
    ]


def _parse_part(part: Any, kinds: tuple[str, ...], where: str) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _MEDIA:
        raise RequestError(
            f"Invalid request: {where}: {kind} input is not supported by this model",
            param=where,
            code="unsupported_parameter",
        )
    if kind not in kinds:
        shown = quoted(kind) if isinstance(kind, str) else "missing"
        raise invalid(f"{where}: unknown content part type {shown}", where)
    text = part.get(kind)
    if not isinstance(text, str):
        raise invalid(f"{where}.{kind} must be a string", f"{where}.{kind}", "invalid_type")
    # Templates know text alone; a refusal is what the assistant said.
    return {"type": "text", "text": text}
