"""JSON objects separated by `;`, perhaps after `<|python_tag|>`: Llama 3.1 to 3.3.

Without the tag they are calls only where they begin the text.
"""

from trioserve.text.tool_calls.wire_format import WireFormat

LLAMA_3 = WireFormat("<|python_tag|>", is_bare=True, separator=";")
