"""Reasoning in the text of a reply: a block in `<think>` and `</think>` at its beginning."""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from trioserve.text.reply_parts import num_possible

OPENING, CLOSING = "<think>", "</think>"


class Block(Enum):
    """What is known of the block."""

    UNDECIDED = "undecided"
    OPEN = "open"
    CLOSED = "closed"
    NONE = "none"


@frozen
class ReasoningFormat:
    """What a family of models does about the block."""

    name: str
    is_assumed: bool = False
    """A reply begins inside the block, without the marker, unless the prompt has closed it."""

    def block_after(self, prompt: str) -> Block:
        """What is known of the block of a reply to a prompt that ends so."""
        prompt = prompt.rstrip()
        if prompt.endswith(CLOSING):
            return Block.NONE
        is_open = self.is_assumed or prompt.endswith(OPENING)
        return Block.OPEN if is_open else Block.UNDECIDED

    def block_within(self, words: str) -> Block:
        """What is known of the block of a reply that goes on with these words of its own."""
        opened, closed = words.rfind(OPENING), words.rfind(CLOSING)
        is_open = opened > closed or (opened == closed and self.is_assumed)
        return Block.OPEN if is_open else Block.NONE


REASONING_FORMATS = {
    "qwen3": ReasoningFormat("qwen3"),
    "deepseek-r1": ReasoningFormat("deepseek-r1", is_assumed=True),
}


@frozen
class Stretch:
    """Text of the block or behind it; `end` as in ReplyPart."""

    text: str
    end: int
    is_reasoning: bool


class ReasoningParser:
    """Tells the block of one choice from the rest, which is contiguous. Made for each choice.

    Without `keeps_markers` the markers and the space next to them belong to neither; with it they
    are the block's. No method is a checkpoint.
    """

    def __init__(self, block: Block, *, keeps_markers: bool = False) -> None:
        """`block` is what the prompt says. A text that begins inside may still open it itself."""
        self.block = block
        self.block_end = 0
        """Where the block, its end marker included, ended in the choice's text."""
        self._keeps_markers = keeps_markers
        self._is_start = True
        """Before anything is known but what the prompt said."""
        self._is_trimming = False
        """Space is passed over until the first word."""
        self._held = ""
        self._num_chars = 0
        """Of the choice's text, those held included."""

    def feed(self, text: str) -> list[Stretch]:
        """What is known with the next piece."""
        self._num_chars += len(text)
        text, self._held = self._held + text, ""
        found: list[Stretch] = []
        if self._is_start and self.block in (Block.UNDECIDED, Block.OPEN):
            text = self._read_opening(text, found)
        if self.block is Block.OPEN and not self._is_start:
            text = self._read_block(text, found)
        if self.block in (Block.CLOSED, Block.NONE):
            self._read_rest(text, found)
        return found

    def flush(self) -> list[Stretch]:
        """What was held back, once no more text will come."""
        held, self._held = self._held, ""
        if not held or self.block is Block.CLOSED:
            return []
        return [Stretch(held, self._num_chars, self.block is Block.OPEN)]

    def _read_opening(self, text: str, found: list[Stretch]) -> str:
        words = text.lstrip()
        if words.startswith(OPENING):
            rest = words[len(OPENING) :]
            if self._keeps_markers:
                self._add(found, text[: len(text) - len(rest)], rest, is_reasoning=True)
            self._enter_block()
            return rest
        if OPENING.startswith(words):
            self._held = text
            return ""
        self._is_start = False
        if self.block is Block.UNDECIDED:
            self.block = Block.NONE
        else:
            self._enter_block()
        return text

    def _enter_block(self) -> None:
        self.block = Block.OPEN
        self._is_start = False
        self._is_trimming = not self._keeps_markers

    def _read_block(self, text: str, found: list[Stretch]) -> str:
        if self._is_trimming:
            text = text.lstrip()
            if not text:
                return ""
            self._is_trimming = False
        words, marker, rest = text.partition(CLOSING)
        if marker:
            self.block = Block.CLOSED
            self.block_end = self._num_chars - len(rest)
            shown = words + marker if self._keeps_markers else words.rstrip()
            self._add(found, shown, text[len(shown) :], is_reasoning=True)
            self._is_trimming = not self._keeps_markers
            return rest
        certain = text[: len(text) - num_possible(text, CLOSING)]
        shown = certain if self._keeps_markers else certain.rstrip()
        self._held = text[len(shown) :]
        self._add(found, shown, self._held, is_reasoning=True)
        return ""

    def _read_rest(self, text: str, found: list[Stretch]) -> None:
        if self._is_trimming:
            text = text.lstrip()
            self._is_trimming = not text
        self._add(found, text, "", is_reasoning=False)

    def _add(self, found: list[Stretch], text: str, rest: str, *, is_reasoning: bool) -> None:
        if text:
            found.append(Stretch(text, self._num_chars - len(rest), is_reasoning))
