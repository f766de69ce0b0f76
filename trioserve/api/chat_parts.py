"""`ChatParts`: one choice of a chat, from its text to the deltas of its chunks and its message."""

import secrets
import string
from collections.abc import Iterable
from typing import Any

from attrs import define, field

from trioserve.engine.request import Token
from trioserve.text.reasoning import Block
from trioserve.text.reply_parts import CallArguments, CallBegun, Content, Reasoning, ReplyPart
from trioserve.text.reply_reader import ReplyReader, ReplySyntax, read_whole

Delta = dict[str, Any]

_SHORT_ID_CHARS = string.ascii_letters + string.digits


@define(eq=False)
class ChatParts:
    """Made for each choice that is read for more than words. Not a checkpoint anywhere."""

    syntax: ReplySyntax
    streams_reasoning: bool = True
    num_reasoning_tokens: int = field(init=False, default=0)
    """Tokens of the reasoning block so far, its markers included."""
    _reader: ReplyReader = field(init=False)
    _num_undecided: int = field(init=False, default=0)
    """Tokens that are the block's if there is one."""
    _num_begun: int = field(init=False, default=0)
    _thought: list[str] = field(init=False, factory=list)
    """What is kept for the block's end."""
    _thought_end: int = field(init=False, default=0)
    _tokens: list[Token] = field(init=False, factory=list)
    """To be shown with the part that they belong to."""

    def __attrs_post_init__(self) -> None:
        self._reader = self.syntax.new_reader()

    @property
    def num_calls(self) -> int:
        """Calls that are complete."""
        return self._reader.num_calls

    def deltas(
        self, text: str, tokens: Iterable[Token] = ()
    ) -> list[tuple[Delta, tuple[Token, ...]]]:
        """What goes out with the next piece of text, and the tokens shown with each."""
        self._tokens += tokens
        return self._shown(self._reader.feed(text))

    def last_deltas(self) -> list[tuple[Delta, tuple[Token, ...]]]:
        """The same for what was held back, once the text has ended."""
        return self._shown(self._reader.flush(), is_end=True)

    def take_tokens(self) -> tuple[Token, ...]:
        """Tokens that belong to no part that has gone out."""
        tokens, self._tokens = self._tokens, []
        return tuple(tokens)

    def count(self, tokens: Iterable[Token]) -> None:
        """Count those of the block, after their text has been fed."""
        starts = [token.text_start for token in tokens]
        block = self._reader.block
        if block is Block.UNDECIDED:
            self._num_undecided += len(starts)
            return
        if block is not Block.NONE:
            self.num_reasoning_tokens += self._num_undecided
        self._num_undecided = 0
        if block is Block.OPEN:
            self.num_reasoning_tokens += len(starts)
        elif block is Block.CLOSED:
            end = self._reader.block_end
            self.num_reasoning_tokens += sum(start < end for start in starts)

    def message(self, text: str) -> Delta:
        """The members of the message that a whole text makes, beside its role. Nothing may have
        been fed."""
        whole = read_whole(self._reader, text)
        members: Delta = {"content": whole.content or (None if whole.calls else "")}
        if whole.reasoning:
            members["reasoning_content"] = whole.reasoning
        if whole.calls:
            members["tool_calls"] = [
                {
                    "id": self._new_id(),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in whole.calls
            ]
        return members

    def _shown(
        self, parts: Iterable[ReplyPart], *, is_end: bool = False
    ) -> list[tuple[Delta, tuple[Token, ...]]]:
        shown: list[tuple[Delta, tuple[Token, ...]]] = []
        for part in parts:
            if isinstance(part, Reasoning) and not self.streams_reasoning:
                self._thought.append(part.text)
                self._thought_end = part.end
                continue
            self._show_thought(shown)
            shown.append((self._delta(part), self._tokens_until(part.end)))
        if is_end or self._reader.block is not Block.OPEN:
            self._show_thought(shown)
        return shown

    def _show_thought(self, shown: list[tuple[Delta, tuple[Token, ...]]]) -> None:
        if self._thought:
            delta = {"reasoning_content": "".join(self._thought)}
            shown.append((delta, self._tokens_until(self._thought_end)))
            self._thought = []

    def _delta(self, part: ReplyPart) -> Delta:
        match part:
            case Content():
                return {"content": part.text}
            case Reasoning():
                return {"reasoning_content": part.text}
            case CallBegun():
                self._num_begun += 1
                function = {"name": part.name, "arguments": ""}
                return self._call(id=self._new_id(), type="function", function=function)
            case CallArguments():
                return self._call(function={"arguments": part.text})

    def _call(self, **members: Any) -> Delta:
        return {"tool_calls": [{"index": self._num_begun - 1, **members}]}

    def _new_id(self) -> str:
        if self.syntax.calls is not None and self.syntax.calls.has_short_ids:
            return "".join(secrets.choice(_SHORT_ID_CHARS) for _ in range(9))
        return f"call_{secrets.token_hex(12)}"

    def _tokens_until(self, end: int) -> tuple[Token, ...]:
        num = next((i for i, each in enumerate(self._tokens) if each.text_start >= end), None)
        taken = self._tokens[:num]
        self._tokens = self._tokens[len(taken) :]
        return tuple(taken)
