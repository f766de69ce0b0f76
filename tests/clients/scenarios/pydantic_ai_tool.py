"""An agent with a tool: `python pydantic_ai_tool.py BASE_URL MODEL` prints what came of it."""

import asyncio
import json
import sys
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

base_url, name = sys.argv[1:]
provider = OpenAIProvider(base_url=base_url, api_key="EMPTY")
agent = Agent(OpenAIChatModel(name, provider=provider))
called: list[list[Any]] = []


@agent.tool_plain
def get_weather(city: str, days: int) -> str:
    """The weather in a city, so many days ahead."""
    called.append([city, days])
    return f"sun in {city}"


def kinds(messages: Any) -> list[str]:
    dumped = json.loads(ModelMessagesTypeAdapter.dump_json(messages))
    return [part["part_kind"] for message in dumped for part in message["parts"]]


async def main() -> None:
    whole = await agent.run("What is the weather?")
    async with agent.run_stream("What is the weather?") as stream:
        streamed = await stream.get_output()
        pieces = kinds(stream.all_messages())
    answer = {
        "called": called,
        "outputs": [whole.output, streamed],
        "kinds": [kinds(whole.all_messages()), pieces],
    }
    sys.stdout.write(json.dumps(answer) + "\n")


asyncio.run(main())
