"""The client's helpers, which put chunks together themselves: `.stream()` and `.parse()`."""

from typing import Any

from client import done, items, main

MESSAGES = [{"role": "user", "content": "Tell me a story about a fox."}]


async def streamed(manager: Any) -> tuple[list[str], Any]:
    """The kinds of the events, and what the helper makes of them."""
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            kinds = [event.type async for event in stream]
            return kinds, await stream.get_final_completion()
    with manager as stream:
        return [event.type for event in stream], stream.get_final_completion()


def plain(completion: Any) -> dict[str, Any]:
    return {
        "choices": [
            {
                "index": choice.index,
                "role": choice.message.role,
                "content": choice.message.content,
                "finish_reason": choice.finish_reason,
                "num_logprobs": len(choice.logprobs.content) if choice.logprobs else 0,
            }
            for choice in completion.choices
        ],
        "usage": completion.usage.model_dump(include={"prompt_tokens", "completion_tokens"}),
    }


async def run(client: Any, model: str, n: str) -> dict[str, Any]:
    fields = {
        "model": model,
        "messages": MESSAGES,
        "n": int(n),
        "seed": 20,
        # The helpers refuse a reply that a limit cut off, so it has to end earlier.
        "stop": ["."],
        "max_tokens": 400,
    }
    whole = await done(client.chat.completions.create(**fields))
    kinds, final = await streamed(
        client.chat.completions.stream(**fields, stream_options={"include_usage": True})
    )
    parsed = await done(client.chat.completions.parse(**fields))
    chunks = await items(client.chat.completions.create(**fields, stream=True))
    return {
        "whole": plain(whole),
        "streamed": plain(final),
        "parsed": plain(parsed),
        "kinds": kinds,
        "num_chunks": len(chunks),
    }


if __name__ == "__main__":
    main(run)
