"""`[TOOL_CALLS]` and a JSON array of calls: Mistral up to its seventh tokenizer."""

from trioserve.text.tool_calls.wire_format import WireFormat

MISTRAL = WireFormat("[TOOL_CALLS]", list_start="[", separator=",", closing="]")
