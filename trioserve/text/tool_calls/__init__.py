"""Calls of tools in the text of a reply: one file a format, behind `ToolCallParser`."""
