"""Calls of tools in a conversation, brought into the form that its chat template takes.

Templates differ in whether arguments are an object or JSON text, and in what the content of a
message is that has calls alone. None says so, so a conversation with a call is tried.
"""

from __future__ import annotations

import json
import re
from itertools import product
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Message = Mapping[str, Any]

_NAME, _ID = "probe_tool", "probe0001"  # some templates take no ids but of nine characters
_ARGUMENTS = '{"probe_key": "probe value"}'
_SHOWN = re.compile(r'"probe_key"\s*:\s*"probe value"')
_PROBE: Sequence[Message] = (
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": _ID, "type": "function", "function": {"name": _NAME, "arguments": _ARGUMENTS}}
        ],
    },
    {"role": "tool", "content": "Fine", "tool_call_id": _ID, "name": _NAME},
)
PROBE_TOOLS: Sequence[Mapping[str, Any]] = (
    {
        "type": "function",
        "function": {
            "name": _NAME,
            "description": "Probe.",
            "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}},
        },
    },
)


@frozen
class CallForm:
    """What a template wants."""

    has_objects: bool = True
    """Arguments are objects, not JSON text."""
    has_null_content: bool = False
    """The content of a message without words is None, not empty."""


def find_call_form(render: Callable[[Sequence[Message]], str | None]) -> CallForm:
    """The first form in which the template shows a call as it is.

    `render` gives None for what the template fails on. For a template that shows no calls at all,
    the first form that it does not fail on.
    """
    forms = [CallForm(*flags) for flags in product((True, False), (True, False))]
    texts = {form: render(in_form(_PROBE, form)) for form in forms}
    usable = [form for form in forms if (texts[form] or "None").find("None") < 0]
    showing = [form for form in usable if _SHOWN.search(texts[form] or "")]
    return next(iter([*showing, *usable]), CallForm())


def has_calls(messages: Iterable[Message]) -> bool:
    """Whether a conversation has calls or answers to them."""
    return any("tool_calls" in each or each["role"] == "tool" for each in messages)


def in_form(messages: Iterable[Message], form: CallForm) -> list[dict[str, Any]]:
    """The messages with their calls in this form, and each answer with its tool's name."""
    names: dict[str, str] = {}
    formed: list[dict[str, Any]] = []
    for message in messages:
        own = dict(message)
        if calls := own.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls if "id" in call}
            own["tool_calls"] = [_formed_call(call, form) for call in calls]
            own["content"] = own.get("content") or (None if form.has_null_content else "")
        elif own["role"] == "tool" and own.get("tool_call_id") in names:
            own.setdefault("name", names[own["tool_call_id"]])
        formed.append(own)
    return formed


def _formed_call(call: Mapping[str, Any], form: CallForm) -> dict[str, Any]:
    function = call["function"]
    arguments: Any = function["arguments"]
    if form.has_objects:
        arguments = _as_object(arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _as_object(text: str) -> Any:
    """Arguments that are no object stay as they are: the template shows them as well as it can."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
