"""One completion by a client that retries as often as it likes to, or as often as it is told.

It says that it is there and asks when it reads a line: several then ask at the same time.
"""

import sys
from typing import Any

import openai
from client import done, main, print_answer


async def run(client: Any, model: str, max_retries: str | None = None) -> dict[str, Any]:
    if max_retries is not None:
        client = client.with_options(max_retries=int(max_retries))
    print_answer("there")
    sys.stdin.readline()
    try:
        got = await done(client.completions.create(model=model, prompt="Once", max_tokens=4))
    except openai.APIStatusError as error:
        return {
            "raised": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "retry_after": error.response.headers.get("retry-after"),
        }
    return {"num_tokens": got.usage.completion_tokens}


if __name__ == "__main__":
    main(run)
