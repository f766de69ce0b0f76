"""A call that the model has to make, whole and through the stream helper, and its result."""

import json
from typing import Any

from client import done, main

MESSAGES = [{"role": "user", "content": "Book a table for four in Plzeň tomorrow at 19:00."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "book_table",
            "strict": True,  # older clients help with no others
            "description": "Book a table.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 8},
                    "guests": {"type": "integer", "minimum": 1, "maximum": 12},
                    "room": {"enum": ["inside", "outside"]},
                },
                "required": ["city", "guests", "room"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "cancel",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"reason": {"type": "string", "maxLength": 8}},
                "required": ["reason"],
            },
        },
    },
]
NAMED = {"type": "function", "function": {"name": "cancel"}}


async def streamed(manager: Any) -> Any:
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            return await stream.get_final_completion()
    with manager as stream:
        return stream.get_final_completion()


def plain(completion: Any) -> dict[str, Any]:
    (choice,) = completion.choices
    return {
        "content": choice.message.content or None,  # the helper begins with an empty one
        "finish_reason": choice.finish_reason,
        "calls": [
            [call.function.name, json.loads(call.function.arguments)]
            for call in choice.message.tool_calls
        ],
    }


async def run(client: Any, model: str) -> dict[str, Any]:
    fields = {"model": model, "messages": MESSAGES, "tools": TOOLS, "seed": 7}
    fields["parallel_tool_calls"] = False
    answer: dict[str, Any] = {"tools": TOOLS}
    whole = await done(client.chat.completions.create(**fields, tool_choice="required"))
    final = await streamed(client.chat.completions.stream(**fields, tool_choice="required"))
    answer |= {"required": plain(whole), "streamed": plain(final)}
    whole = await done(client.chat.completions.create(**fields, tool_choice=NAMED))
    answer["named"] = plain(whole)
    message = whole.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "done"}
    messages = [*MESSAGES, message, result]
    said = await done(
        client.chat.completions.create(**(fields | {"messages": messages}), max_tokens=8)
    )
    answer["said"] = said.choices[0].message.content
    return answer


if __name__ == "__main__":
    main(run)
