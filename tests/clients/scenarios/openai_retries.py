"""One completion by a client that retries as often as it likes to, or as often as it is told."""

from typing import Any

import openai
from client import done, main


async def run(client: Any, model: str, max_retries: str | None = None) -> dict[str, Any]:
    if max_retries is not None:
        client = client.with_options(max_retries=int(max_retries))
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
