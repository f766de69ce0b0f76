"""`ReplyReader`: from the text of one choice to its content, its thoughts and its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from trioserve.text.reasoning import Block, ReasoningFormat, ReasoningParser, Stretch
from trioserve.text.reply_parts import (
    CallArguments,
    CallBegun,
    Content,
    Reasoning,
    ReplyPart,
)
from trioserve.text.tool_calls.call_text import ToolCall
from trioserve.text.tool_calls.json_list import ForcedCallParser
from trioserve.text.tool_calls.wire_format import WireParser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trioserve.text.tool_calls.formats import ToolCallFormat
    from trioserve.text.tool_calls.parser import ToolCallParser


@frozen
class ReplySyntax:
    """What the replies to one request may consist of beside words."""

    reasoning: ReasoningFormat | None = None
    block: Block = Block.UNDECIDED
    """What the prompt says of the block."""
    separates_reasoning: bool = True
    """If not, the block is found but remains content."""
    calls: ToolCallFormat | None = None
    is_forced: bool = False
    """A grammar holds the reply, after the block, to a JSON array of calls."""
    tool_names: frozenset[str] = frozenset()
    max_calls: int | None = None

    def new_reader(self) -> ReplyReader:
        """For one choice."""
        return ReplyReader(self)

    def new_call_parser(self, origin: int) -> ToolCallParser | None:
        """For the text from `origin` on; none if no calls are looked for."""
        if self.is_forced:
            return ForcedCallParser(self.tool_names, origin=origin)
        if self.calls is None:
            return None
        return WireParser(self.calls.wire, self.tool_names, max_calls=self.max_calls, origin=origin)


class ReplyReader:
    """Made for each choice, not shared. No method is a checkpoint."""

    def __init__(self, syntax: ReplySyntax) -> None:
        self._syntax = syntax
        self._reasoning: ReasoningParser | None = None
        if syntax.reasoning is not None:
            self._reasoning = ReasoningParser(
                syntax.block, keeps_markers=not syntax.separates_reasoning
            )
        self._calls: ToolCallParser | None = None
        self._is_in_rest = False
        self._num_chars = 0

    @property
    def num_calls(self) -> int:
        """Calls that are complete."""
        return self._calls.num_calls if self._calls is not None else 0

    @property
    def block(self) -> Block:
        """What is known of the reasoning block."""
        return self._reasoning.block if self._reasoning is not None else Block.NONE

    @property
    def block_end(self) -> int:
        """Characters of the text before the end of a block that is closed, its marker included."""
        return self._reasoning.block_end if self._reasoning is not None else 0

    def feed(self, text: str) -> list[ReplyPart]:
        """What is known with the next piece of text."""
        self._num_chars += len(text)
        if self._reasoning is None:
            return self._read_rest(text, self._num_chars)
        return self._read(self._reasoning.feed(text))

    def flush(self) -> list[ReplyPart]:
        """What was held back, once no more text will come. Nothing may be fed afterwards."""
        parts = self._read(self._reasoning.flush()) if self._reasoning is not None else []
        return [*parts, *self._calls.flush()] if self._calls is not None else parts

    def _read(self, stretches: Iterable[Stretch]) -> list[ReplyPart]:
        parts: list[ReplyPart] = []
        for stretch in stretches:
            if not stretch.is_reasoning:
                parts += self._read_rest(stretch.text, stretch.end)
            elif self._syntax.separates_reasoning:
                parts.append(Reasoning(stretch.text, stretch.end))
            else:
                parts.append(Content(stretch.text, stretch.end))
        return parts

    def _read_rest(self, text: str, end: int) -> list[ReplyPart]:
        """What follows the block is contiguous, so that its parser can count for itself."""
        if not self._is_in_rest:
            self._is_in_rest = True
            self._calls = self._syntax.new_call_parser(end - len(text))
        if self._calls is not None:
            return self._calls.feed(text)
        return [Content(text, end)] if text else []


@frozen
class WholeReply:
    """A reply that has ended."""

    content: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    num_complete_calls: int


def read_whole(reader: ReplyReader, text: str) -> WholeReply:
    """What the parts of a whole text join to; the same as if it came in pieces."""
    joined = _Joined()
    for part in (*reader.feed(text), *reader.flush()):
        joined.add(part)
    return joined.reply(reader.num_calls)


@define
class _Joined:
    content: list[str] = field(factory=list)
    reasoning: list[str] = field(factory=list)
    names: list[str] = field(factory=list)
    arguments: list[list[str]] = field(factory=list)

    def add(self, part: ReplyPart) -> None:
        match part:
            case Content():
                self.content.append(part.text)
            case Reasoning():
                self.reasoning.append(part.text)
            case CallBegun():
                self.names.append(part.name)
                self.arguments.append([])
            case CallArguments():
                self.arguments[-1].append(part.text)

    def reply(self, num_complete: int) -> WholeReply:
        calls = zip(self.names, map("".join, self.arguments), strict=True)
        return WholeReply(
            content="".join(self.content),
            reasoning="".join(self.reasoning),
            calls=tuple(ToolCall(*call) for call in calls),
            num_complete_calls=num_complete,
        )
