"""A JSON array of `{"name", "parameters"}`: what a grammar makes of a forced call, in any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import regex  # type: ignore[import-untyped]

from trioserve.text.reply_parts import CallArguments, CallBegun, Content, ReplyPart
from trioserve.text.tool_calls.call_text import ObjectScan, Scanned, read_json
from trioserve.text.tool_calls.wire_format import WireFormat

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

JSON_LIST = WireFormat(None, is_bare=True, list_start="[", separator=",", closing="]")
"""For text that no grammar holds to the form."""

_CALL = r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"parameters"\s*:\s*(?=\{)'
_FIRST = regex.compile(rf"\s*\[\s*{_CALL}")
_NEXT = regex.compile(rf"\s*\}}\s*(?:\]\s*|,\s*{_CALL})")


class ForcedCallParser:
    """See ToolCallParser. For text that a grammar holds to the form: arguments go out as they come.

    What a limit cuts off stays a call that is not complete. Text of another form is content from
    where it leaves the form.
    """

    def __init__(self, names: AbstractSet[str], *, origin: int = 0) -> None:
        """`origin` is where the text begins in the choice's own."""
        self._names = names
        self._num_calls = 0
        self._held = ""
        """What stands between the arguments of two calls, as far as it has come."""
        self._form: regex.Pattern[str] | None = _FIRST
        """What has to come; none for content."""
        self._scan: ObjectScan | None = None
        """While arguments are read."""
        self._origin = origin

    @property
    def num_calls(self) -> int:
        """See ToolCallParser."""
        return self._num_calls

    def feed(self, text: str) -> list[ReplyPart]:
        """See ToolCallParser."""
        parts: list[ReplyPart] = []
        text, self._held = self._held + text, ""
        self._origin += len(text)
        while text:
            if self._scan is None:
                text = self._read_form(text, parts)
            else:
                text = self._read_arguments(self._scan, text, parts)
        return parts

    def flush(self) -> list[ReplyPart]:
        """See ToolCallParser."""
        held, self._held = self._held, ""
        # After a call it is the form's own, or a call of which not even the name is whole.
        if not held or self._form is _NEXT:
            return []
        return [Content(held, self._origin + len(held))]

    def _read_form(self, text: str, parts: list[ReplyPart]) -> str:
        """What stands before arguments; gives the text that is still to be read."""
        match = self._form.match(text, partial=True) if self._form is not None else None
        end, name = 0, None
        if match is not None:
            if match.partial or (match[1] is None and match.end() == len(text)):
                # The end of the list may have more space after it.
                self._held = text
                self._origin -= len(text)
                return ""
            end, name = match.end(), read_json(match[1] or "null")
        rest = text[end:]
        if isinstance(name, str) and name in self._names:
            parts.append(CallBegun(name, self._origin - len(rest)))
            self._scan = ObjectScan()
            return rest
        self._form = None
        is_behind_list = match is not None and match[1] is None
        parts.append(Content(rest if is_behind_list else text, self._origin))
        return ""

    def _read_arguments(self, scan: ObjectScan, text: str, parts: list[ReplyPart]) -> str:
        state, end = scan.feed(text, 0)
        rest = text[end:]
        if end:
            parts.append(CallArguments(text[:end], self._origin - len(rest)))
        if state is not Scanned.OPEN:
            self._num_calls += state is Scanned.WHOLE
            self._scan = None
            self._form = _NEXT if state is Scanned.WHOLE else None
        return rest
