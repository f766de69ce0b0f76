"""The formats by name, and which of them a chat template teaches its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from trioserve.text.tool_calls.hermes import HERMES
from trioserve.text.tool_calls.json_list import JSON_LIST
from trioserve.text.tool_calls.llama3 import LLAMA_3
from trioserve.text.tool_calls.mistral import MISTRAL

if TYPE_CHECKING:
    from trioserve.text.tool_calls.wire_format import WireFormat


@frozen
class ToolCallFormat:
    """How calls look in a model's text."""

    name: str
    wire: WireFormat
    has_short_ids: bool = False
    """Ids of nine letters or digits: the template takes no others when they come back."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be special tokens, and have to be seen all the same."""
        closing = self.wire.closing if len(self.wire.closing) > 1 else ""
        return tuple(filter(None, (self.wire.opening, closing)))


FORMATS = {
    "hermes": ToolCallFormat("hermes", HERMES),
    "qwen25": ToolCallFormat("qwen25", HERMES),
    "qwen": ToolCallFormat("qwen25", HERMES),
    "llama3": ToolCallFormat("llama3", LLAMA_3),
    "mistral": ToolCallFormat("mistral", MISTRAL, has_short_ids=True),
    "json": ToolCallFormat("json", JSON_LIST),
}

_OTHER_FORMATS = ("<function=", "<arg_key>", "[ARGS]")
"""Told apart from ours by these: Qwen3-Coder, GLM-4.5 and later Mistrals share our markers."""


def detect_format(template: str) -> ToolCallFormat | None:
    """The format that a chat template shows its model, told by the markers in its source."""
    if any(mark in template for mark in _OTHER_FORMATS):
        return None
    if "<tool_call>" in template:
        return FORMATS["hermes"]
    if "[TOOL_CALLS]" in template:
        return FORMATS["mistral"]
    is_llama = "<|start_header_id|>" in template
    if is_llama and ("<|python_tag|>" in template or "ipython" in template):
        return FORMATS["llama3"]
    return None
