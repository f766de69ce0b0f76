"""Requests that the client gives up: on a time limit, or by closing a stream early.

Prints what came of it and then stays until its input ends: a process that ends closes all it has,
and nobody could tell whether the client had done so by itself.
"""

import sys
from typing import Any

import openai
from client import close, done, main, print_answer

MESSAGES = [{"role": "user", "content": "Tell me a long story."}]
ENDLESS = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}}


async def first_contents(stream: Any, num: int) -> list[str]:
    """The first contents of a chat stream, which is then closed."""
    contents: list[str] = []
    stream = await done(stream)
    if hasattr(stream, "__aiter__"):
        async for chunk in stream:
            contents.append(chunk.choices[0].delta.content)
            if len(contents) == num:
                break
    else:
        for chunk in stream:
            contents.append(chunk.choices[0].delta.content)
            if len(contents) == num:
                break
    await close(stream)
    return contents


async def run_into_a_timeout(client: Any, model: str) -> str:
    impatient = client.with_options(timeout=3.0, max_retries=0)
    try:
        await done(impatient.completions.create(model=model, prompt="Once", **ENDLESS))
    except openai.APIError as error:
        return type(error).__name__
    return "an answer"


async def close_a_stream(client: Any, model: str) -> list[str]:
    create = client.chat.completions.create
    stream = create(model=model, messages=MESSAGES, stream=True, n=2, **ENDLESS)
    return await first_contents(stream, 8)


WAYS_TO_LEAVE = {"timeout": run_into_a_timeout, "close": close_a_stream}


async def leave(client: Any, model: str, how: str) -> str:
    print_answer(await WAYS_TO_LEAVE[how](client, model))
    sys.stdin.read()
    return "stayed until the end"


if __name__ == "__main__":
    main(leave)
