"""`ToolCallParser`: what reads calls out of a text that comes in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trioserve.text.reply_parts import ReplyPart


class ToolCallParser(Protocol):
    """Reads one choice; made for each, not shared. No method is a checkpoint.

    However the text is cut into pieces, the parts join to the same content and the same calls. No
    character is shown twice, and none is lost but those that the format itself consists of.
    """

    @property
    def num_calls(self) -> int:
        """Calls that are complete."""
        ...

    def feed(self, text: str) -> list[ReplyPart]:
        """What is known with the next piece of text."""
        ...

    def flush(self) -> list[ReplyPart]:
        """What was held back, once no more text will come. Nothing may be fed afterwards."""
        ...
