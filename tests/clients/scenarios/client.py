"""For scripts that run in a client's environment: one text for the sync and the async client.

`python SCRIPT sync|async BASE_URL MODEL …` prints one JSON document, in one line.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import openai

CLIENTS = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}


async def done(answer: Any) -> Any:
    """An answer of either client."""
    return await answer if inspect.isawaitable(answer) else answer


async def items(stream: Any) -> list[Any]:
    """All that a stream of either client gives."""
    stream = await done(stream)
    return [item async for item in stream] if hasattr(stream, "__aiter__") else list(stream)


async def close(closable: Any) -> None:
    await done(closable.close())


def main(scenario: Callable[..., Awaitable[Any]]) -> None:
    """Run `scenario(client, model, *arguments)` and print what it returns."""
    way, base_url, model, *arguments = sys.argv[1:]

    async def run() -> Any:
        client = CLIENTS[way](base_url=base_url, api_key="EMPTY")
        try:
            return await scenario(client, model, *arguments)
        finally:
            await close(client)

    print_answer(asyncio.run(run()))


def print_answer(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
