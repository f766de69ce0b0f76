"""JSON as models write it: where an object ends, and which call it is."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_ARGUMENT_KEYS = ("arguments", "parameters")
"""Each format has its own, and models write the other one now and then."""

_SPACE = re.compile(r"[ \t\r\n]*")
_OUTSIDE = re.compile(r"[ \t\r\n0-9A-Za-z+\-.,:]*")
_INSIDE = re.compile(r'[^"\\]*')


def skip_space(text: str, start: int) -> int:
    """The index of the first character from `start` on that JSON does not pass over."""
    match = _SPACE.match(text, start)
    assert match is not None, "the pattern matches the empty text"
    return match.end()


class Scanned(Enum):
    """How far an object has come."""

    OPEN = "open"
    WHOLE = "whole"
    BROKEN = "broken"


class ObjectScan:
    """Finds the end of a JSON object that comes in pieces, each character looked at once.

    What it takes for whole may still be no JSON; what is certainly none is told at once, so that
    words after a broken call are not waited for.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False

    def feed(self, text: str, start: int) -> tuple[Scanned, int]:
        """Read on from `start`. The index is behind the object, or at what broke it."""
        index, num_chars = start, len(text)
        while index < num_chars:
            if self._is_in_string:
                index = self._read_string(text, index)
                continue
            match = _OUTSIDE.match(text, index)
            assert match is not None, "the pattern matches the empty text"
            index = match.end()
            if index == num_chars:
                break
            char = text[index]
            if char not in '"{}[]':
                return Scanned.BROKEN, index
            index += 1
            self._is_in_string = char == '"'
            self._depth += (char in "{[") - (char in "}]")
            if self._depth == 0:
                return Scanned.WHOLE, index
        return Scanned.OPEN, index

    def _read_string(self, text: str, index: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return index + 1
        match = _INSIDE.match(text, index)
        assert match is not None, "the pattern matches the empty text"
        index = match.end()
        if index < len(text):
            self._is_escaped = text[index] == "\\"
            self._is_in_string = self._is_escaped
            index += 1
        return index


@frozen
class ToolCall:
    """A call as the model wrote it."""

    name: str
    arguments: str
    """A JSON object."""


def read_call(text: str, names: AbstractSet[str]) -> ToolCall | None:
    """The call that a JSON object describes; None if it is no call of one of these tools."""
    members = _members(text)
    if members is None:
        return None
    name = read_json(members.get("name", "null"))
    if not isinstance(name, str) or name not in names:
        return None
    raw = next((members[key] for key in _ARGUMENT_KEYS if key in members), "null")
    arguments = _arguments(raw)
    return None if arguments is None else ToolCall(name, arguments)


def _arguments(raw: str) -> str | None:
    if raw == "null":
        return "{}"
    value = read_json(raw)
    if isinstance(value, str):
        # Some models write the object as a string, as the API itself does.
        raw, value = value, read_json(value)
    return raw if isinstance(value, dict) and _is_text(raw) else None


def _is_text(value: str) -> bool:
    """Half of a pair of surrogates cannot be sent."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unread(_digits: str) -> int:
    # Numbers are passed on as they are written: reading them could lose digits, or take long.
    return 0


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_int=_unread, parse_float=_unread)


def _members(text: str) -> dict[str, str] | None:
    """The members of a JSON object, each value as it is written; None if it is none."""
    if not isinstance(read_json(text), dict):
        return None
    members: dict[str, str] = {}
    index = skip_space(text, text.index("{") + 1)
    while text[index] != "}":
        key, index = _DECODER.raw_decode(text, index)
        start = skip_space(text, skip_space(text, index) + 1)
        _, index = _DECODER.raw_decode(text, start)
        members[key] = text[start:index]
        index = skip_space(text, index)
        if text[index] == ",":
            index = skip_space(text, index + 1)
    return members


def read_json(text: str) -> Any:
    """What a JSON text stands for, numbers aside; None also for what is no JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
