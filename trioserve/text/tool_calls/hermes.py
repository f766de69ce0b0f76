"""`<tool_call>` JSON `</tool_call>`, repeated: Hermes, Qwen2.5, Qwen3 and many that follow them."""

from trioserve.text.tool_calls.wire_format import WireFormat

HERMES = WireFormat("<tool_call>", closing="</tool_call>")
