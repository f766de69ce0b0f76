"""trioserve with a model that costs nothing and calls a tool, for clients that bring tools.

`python tool_app.py serve …` is `trioserve serve …` but for the load. Asked a question with tools at
hand, the model calls `get_weather`; told a result, it repeats it.
"""

import json
import threading

from attrs import define, evolve

import trioserve.hosting
from trioserve.config import ServerConfig
from trioserve.engine.served import ServedModel
from trioserve.scheduler.plan import PlanRow
from trioserve.testing.fake_model import FakeRunner, fake_model
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer

TEMPLATE = """\
{%- for tool in tools or [] %}{{- 'Tool: ' + tool | tojson + '\\n' }}{%- endfor %}
{%- for message in messages %}
    {{- message.role + ': ' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
        {{- call.function.arguments | tojson + '}</tool_call>' }}
    {%- endfor %}
    {{- '\\n' }}
{%- endfor %}
"""
ARGUMENTS = {"city": "Plzeň", "days": 2}
CALL = f"<tool_call>\n{json.dumps({'name': 'get_weather', 'arguments': ARGUMENTS})}\n</tool_call>"


def reply_to(prompt: str) -> str:
    """What the model says after this prompt."""
    *_, last = prompt.strip().split("\n")
    role, _, words = last.partition(": ")
    if role == "tool":
        return f"The weather: {words}."
    return CALL if "Tool: " in prompt else "I have no tools."


@define(eq=False)
class CallingRunner(FakeRunner):
    """Says `reply_to` its prompt; token ids are bytes."""

    def draw(self, row: PlanRow, prefix: tuple[int, ...]) -> int:
        """See FakeRunner."""
        prompt = row.sequence.prompt_ids
        reply = reply_to(bytes(prompt).decode()).encode()
        position = row.end - len(prompt)
        return reply[position] if position < len(reply) else EOS_ID


def load_calling_model(
    _config: ServerConfig, _max_running: int, _stop: threading.Event
) -> ServedModel:
    runner = CallingRunner(num_pages=1024, page_size=16)
    model = fake_model(runner, max_step_tokens=512, max_model_len=4096)
    return evolve(model, tokenizer=byte_tokenizer(TEMPLATE))


trioserve.hosting.load_served_model = load_calling_model

if __name__ == "__main__":
    from trioserve.cli import main

    main()
