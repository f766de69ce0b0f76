"""`WireFormat`: how a model writes calls as JSON objects, and the parser of all such formats."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from attrs import frozen

from trioserve.text.reply_parts import (
    CallArguments,
    CallBegun,
    Content,
    ReplyPart,
    num_possible,
)
from trioserve.text.tool_calls.call_text import ObjectScan, Scanned, read_call, skip_space

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


@frozen
class WireFormat:
    """What stands around the objects. Space between any two of these means nothing."""

    opening: str | None
    """The marker before calls; without one they can only begin the text."""
    is_bare: bool = False
    """Calls may begin the text without the marker."""
    list_start: str = ""
    separator: str = ""
    closing: str = ""

    @property
    def first_char(self) -> str:
        """What calls begin with, after the marker."""
        return self.list_start or "{"


class _At(Enum):
    """Where in the text the parser is."""

    START = "start"
    WORDS = "words"
    LIST = "list"
    CALL = "call"
    OBJECT = "object"
    AFTER = "after"


class WireParser:
    """See ToolCallParser.

    A call is told when its object is whole: until then nobody knows whether it is one, and what
    has been told cannot be taken back. Text that turns out to be no call is content, unchanged, and
    what follows it is read as words again. Of the content's own space that at its end is left out
    if there are calls, and that at its beginning if it comes after one.
    """

    def __init__(
        self,
        wire: WireFormat,
        names: AbstractSet[str],
        *,
        max_calls: int | None = None,
        origin: int = 0,
    ) -> None:
        """`origin` is where the text begins in the choice's own. After `max_calls` the rest is
        content."""
        self._wire = wire
        self._names = names
        self._max_calls = max_calls
        self._num_calls = 0
        self._parts: list[ReplyPart] = []
        self._at = _At.START if wire.is_bare else _At.WORDS
        # Text that is not settled, in its order: what stands before an object, and the object.
        self._lead: list[str] = []
        self._object: list[str] = []
        self._scan = ObjectScan()
        self._partial = ""
        """The possible beginning of a marker."""
        self._space: list[str] = []
        """Space after the content so far."""
        self._has_content = False
        self._origin = origin
        """Where the piece at hand begins in the choice's text."""

    @property
    def num_calls(self) -> int:
        """See ToolCallParser."""
        return self._num_calls

    def feed(self, text: str) -> list[ReplyPart]:
        """See ToolCallParser."""
        num_before = len(self._partial)
        text, self._partial = self._partial + text, ""
        self._origin -= num_before
        index = 0
        while index < len(text):
            index = self._read(text, index)
        self._origin += len(text)
        return self._take()

    def flush(self) -> list[ReplyPart]:
        """See ToolCallParser."""
        is_between = self._num_calls > 0 and self._at in (_At.LIST, _At.CALL, _At.AFTER)
        # After a whole call, a marker with nothing behind it tells nothing.
        if not is_between:
            self._release(self._partial, self._origin)
        if not self._num_calls and self._space:
            self._parts.append(Content("".join(self._space), self._origin))
        return self._take()

    def _take(self) -> list[ReplyPart]:
        parts, self._parts = self._parts, []
        return parts

    def _read(self, text: str, index: int) -> int:
        """Read on in the piece from `index`; says how far it came."""
        if self._at is _At.WORDS:
            return self._read_words(text, index)
        if self._at is _At.OBJECT:
            return self._read_object(text, index)
        end = skip_space(text, index)
        self._lead.append(text[index:end])
        if end == len(text):
            return end
        if self._at is _At.AFTER:
            return self._read_after(text, end)
        is_list = self._at is _At.LIST or (self._at is _At.START and self._wire.list_start)
        if text[end] != (self._wire.list_start if is_list else "{"):
            return self._fail(text, end, end)
        if is_list:
            self._lead.append(text[end])
            self._at = _At.CALL
            return end + 1
        self._at, self._scan = _At.OBJECT, ObjectScan()
        return end

    def _read_words(self, text: str, index: int) -> int:
        opening = self._wire.opening
        if opening is None or self._is_full:
            return self._fail(text, index, len(text))
        found = text.find(opening, index)
        if found >= 0:
            self._release(text[index:found], self._origin + found)
            self._lead = [opening]
            self._at = _At.LIST if self._wire.list_start else _At.CALL
            return found + len(opening)
        end = len(text) - num_possible(text[index:], opening)
        self._release(text[index:end], self._origin + end)
        self._partial = text[end:]
        return len(text)

    def _read_object(self, text: str, index: int) -> int:
        state, end = self._scan.feed(text, index)
        self._object.append(text[index:end])
        if state is Scanned.BROKEN:
            return self._fail(text, end, end)
        if state is Scanned.OPEN:
            return end
        call = read_call("".join(self._object), self._names)
        if call is None:
            return self._fail(text, end, end)
        self._lead, self._object = [], []
        self._num_calls += 1
        self._parts += (
            CallBegun(call.name, self._origin + end),
            CallArguments(call.arguments, self._origin + end),
        )
        self._at = _At.AFTER
        return end

    def _read_after(self, text: str, index: int) -> int:
        """What may follow a call: the next one, or the end of the calls."""
        wire = self._wire
        if wire.closing and text.startswith(wire.closing, index):
            self._lead = []
            self._at = _At.WORDS
            return index + len(wire.closing)
        rest = text[index:]
        if wire.closing and num_possible(rest, wire.closing) == len(rest):
            self._partial = rest
            return len(text)
        if not self._is_full:
            if wire.separator and text[index] == wire.separator:
                self._lead.append(wire.separator)
                self._at = _At.CALL
                return index + 1
            # Without an end marker the next object speaks for itself.
            if not wire.closing and text[index] == "{":
                self._at = _At.CALL
                return index
        return self._fail(text, index, index)

    @property
    def _is_full(self) -> bool:
        return self._max_calls is not None and self._num_calls >= self._max_calls

    def _fail(self, text: str, start: int, end: int) -> int:
        """What is held back is content, with the text from `start` to `end`; words follow."""
        self._at = _At.WORDS
        self._release(text[start:end], self._origin + end)
        return end

    def _release(self, text: str, end: int) -> None:
        """All that is held back and `text` are content, which ends at `end`."""
        text = "".join((*self._lead, *self._object)) + text
        self._lead, self._object = [], []
        words = text.rstrip()
        if words:
            shown = "".join(self._space) + words
            if self._num_calls and not self._has_content:
                shown = shown.lstrip()
            self._space = []
            self._has_content = True
            self._parts.append(Content(shown, end - (len(text) - len(words))))
        if len(words) < len(text):
            self._space.append(text[len(words) :])
