"""What the tests of tools and reasoning share: tools, replies put together, a model that calls."""

from typing import Any

from attrs import define, field

from tests.api.answers import Answer
from tests.text import tool_templates
from trioserve.testing.fake_text import byte_tokenizer
from trioserve.text.tokenizer import Tokenizer

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]

QWEN = byte_tokenizer(tool_templates.QWEN)

ARGUMENTS = '{"city": "Plzeň"}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
CLOCK_CALL = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


def tokenizer(template: str, *more_special: str) -> Tokenizer:
    return byte_tokenizer(template, more_special=more_special)


@define
class Message:
    """One choice of a chat, streamed or not; its calls without their ids, which are in `ids`."""

    content: str | None = None
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(factory=list)
    finish: tuple[str, Any] | None = None
    ids: list[str] = field(factory=list, eq=False)
    order: list[str] = field(factory=list, eq=False)
    """What each delta carried."""


def messages(answer: Answer) -> list[Message]:
    """The choices, each chunk held against the rules for streams."""
    assert answer.status == 200, answer.body
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return [_whole(choice) for choice in answer.json()["choices"]]
    found: dict[int, Message] = {}
    for piece in answer.pieces():
        _add(found.setdefault(piece["index"], Message()), piece)
    for message in found.values():
        assert message.finish is not None
        if message.content == "" and message.calls:
            message.content = None  # the opening's, which a whole message does not have
    return [found[index] for index in sorted(found)]


def _whole(choice: dict[str, Any]) -> Message:
    message = choice["message"]
    calls = message.get("tool_calls", [])
    assert "tool_calls" not in message or calls, "an empty list of calls"
    assert message.get("reasoning_content", "some")
    return Message(
        content=message["content"],
        reasoning=message.get("reasoning_content", ""),
        calls=[call["function"] for call in calls],
        finish=(choice["finish_reason"], choice["matched_stop"]),
        ids=[call["id"] for call in calls],
    )


def _add(message: Message, piece: dict[str, Any]) -> None:
    assert message.finish is None, "nothing comes after the finish chunk"
    delta = dict(piece["delta"])
    if message.content is None:
        assert delta == {"role": "assistant", "content": ""}
        message.content = ""
        return
    if piece["finish_reason"] is not None:
        assert delta == {}
        message.finish = (piece["finish_reason"], piece["matched_stop"])
        return
    ((kind, value),) = delta.items()
    assert value, delta
    message.order.append(kind)
    match kind:
        case "content":
            message.content += value
        case "reasoning_content":
            message.reasoning += value
        case "tool_calls":
            (call,) = value
            _add_call(message, call)
        case _:
            raise AssertionError(delta)


def _add_call(message: Message, call: dict[str, Any]) -> None:
    function = call["function"]
    if call["index"] == len(message.calls):
        assert call.keys() == {"index", "id", "type", "function"}
        assert call["type"] == "function"
        assert function.keys() == {"name", "arguments"}
        assert function["arguments"] == ""
        message.ids.append(call["id"])
        message.calls.append(dict(function))
        return
    assert call["index"] == len(message.calls) - 1, "only the last call goes on"
    assert call.keys() == {"index", "function"}
    assert function.keys() == {"arguments"}
    message.calls[-1]["arguments"] += function["arguments"]
