"""What a chat's replies are read for: calls of tools, and a block of reasoning before them."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from trioserve.api.schema.chat import ChatBody
from trioserve.api.schema.structured import constraints_of
from trioserve.api.schema.tokens import TokenIds
from trioserve.api.schema.tools import tool_names
from trioserve.config import ServerConfig
from trioserve.engine.request import GenerateRequest, TextWatch
from trioserve.text.reasoning import (
    CLOSING,
    OPENING,
    REASONING_FORMATS,
    Block,
    ReasoningFormat,
)
from trioserve.text.reply_reader import ReplySyntax
from trioserve.text.tokenizer import Tokenizer
from trioserve.text.tool_calls.formats import FORMATS, ToolCallFormat

_TAIL_TOKENS = 64
"""Enough of a prompt to see whether it ends with an open or a closed block."""


def call_format(config: ServerConfig, tokenizer: Tokenizer) -> ToolCallFormat | None:
    """How the model writes calls; None if no calls are looked for."""
    if config.tool_call_parser == "auto":
        return tokenizer.tool_call_format
    return FORMATS.get(config.tool_call_parser)


def reply_syntax(
    config: ServerConfig, tokenizer: Tokenizer, body: ChatBody, prompt: TokenIds
) -> ReplySyntax | None:
    """For the replies to `prompt`; None if they are words and nothing else."""
    reasoning = REASONING_FORMATS.get(config.reasoning_parser)
    choice, is_structured = body.active_choice, bool(constraints_of(body))
    is_forced = choice is not None and choice.is_forced
    # A reply that has to be something else makes no calls.
    has_calls = choice is not None and not is_structured
    calls = call_format(config, tokenizer) if has_calls else None
    if reasoning is None and calls is None and not is_forced:
        return None
    block = Block.NONE
    if reasoning is not None:
        block = _block(reasoning, tokenizer, body, prompt)
        if block is Block.UNDECIDED and (is_structured or is_forced):
            # A grammar needs to know where it begins: behind a block that the reply has to close.
            block = Block.OPEN
    return ReplySyntax(
        reasoning=reasoning,
        block=block,
        separates_reasoning=body.separate_reasoning,
        calls=calls,
        is_forced=is_forced,
        tool_names=tool_names(body.tools),
        max_calls=None if body.parallel_tool_calls else 1,
    )


def read_as(
    request: GenerateRequest, syntax: ReplySyntax | None, tokenizer: Tokenizer
) -> GenerateRequest:
    """The request with what its syntax asks of the engine.

    Markers are shown, a reply that may hold one call ends after it, and a grammar begins behind the
    block.
    """
    if syntax is None:
        return request
    markers = syntax.calls.markers if syntax.calls is not None else ()
    if syntax.reasoning is not None:
        markers += (OPENING, CLOSING)
    shown_ids = tokenizer.special_ids_of(markers)
    new_watch = None
    if syntax.calls is not None and syntax.max_calls is not None and not syntax.is_forced:
        new_watch = _CallWatch(syntax)
    generations = tuple(
        evolve(
            each,
            shown_ids=shown_ids,
            new_watch=new_watch,
            grammar_begins_after=CLOSING if syntax.block is Block.OPEN else None,
        )
        for each in request.generations
    )
    return evolve(request, generations=generations)


class _CallWatch:
    """Makes watches that end a reply with its first whole call."""

    def __init__(self, syntax: ReplySyntax) -> None:
        self._syntax = syntax

    def __call__(self) -> TextWatch:
        reader = self._syntax.new_reader()

        def watch(text: str) -> bool:
            reader.feed(text)
            return reader.num_calls > 0

        return watch


def _block(
    reasoning: ReasoningFormat, tokenizer: Tokenizer, body: ChatBody, prompt: TokenIds
) -> Block:
    if body.continue_final_message and body.messages is not None:
        return reasoning.block_within(_words(body.messages[-1]["content"]))
    tail = tokenizer.decode(prompt[-_TAIL_TOKENS:], skip_special_tokens=False)
    return reasoning.block_after(tail)


def _words(content: str | Sequence[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part["text"] for part in content)
