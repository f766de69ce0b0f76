"""Reasoning kept apart from what is said, in messages, streams and counts."""

from typing import Any

import pytest

from tests.api.kit import CHAT, MESSAGES, ApiBench, StartApi
from tests.api.tool_kit import CALL, QWEN, TOOLS, Message, messages, tokenizer
from tests.text import tool_templates

THOUGHT = "<think>\nI think.\n</think>\n\n"
STOPPED = ("stop", 256)
OPENED = tool_templates.CHATML + "{{- '<|im_start|>assistant\\n<think>\\n' -}}"
CLOSED = OPENED + "{{- '\\n</think>\\n\\n' -}}"


async def start_thinking(
    start: StartApi, text: Any, parser: str = "qwen3", template: str = tool_templates.CHATML
) -> ApiBench:
    bench = await start(
        text,
        reasoning_parser=parser,
        default_max_tokens="context",
        max_model_len=2048,
        num_pages=1024,
    )
    bench.use_tokenizer(tokenizer(template))
    return bench


async def both(bench: ApiBench, **fields: Any) -> Message:
    """The one choice, the same streamed and not, with the same usage."""
    whole = await bench.post(CHAT, **fields)
    streamed = await bench.post(CHAT, stream=True, stream_options={"include_usage": True}, **fields)
    usages = [streamed.events()[-1]["usage"], whole.json()["usage"]]
    assert usages[0] == usages[1]
    (message,) = messages(whole)
    assert messages(streamed) == [message]
    return message


async def num_reasoning(bench: ApiBench, **fields: Any) -> int:
    usage = (await bench.post(CHAT, **fields)).json()["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": usage["reasoning_tokens"]}
    return int(usage["reasoning_tokens"])


@pytest.mark.row("S-N-010")
async def test_the_block_is_apart_and_counted(start: StartApi) -> None:
    bench = await start_thinking(start, f"{THOUGHT}I say.")
    assert await both(bench) == Message("I say.", "I think.", [], STOPPED)
    # A token a character, the markers included.
    assert await num_reasoning(bench) == len("<think>\nI think.\n</think>")
    answer = await bench.post(CHAT, stream=True)
    (message,) = messages(answer)
    assert message.order == sorted(message.order, reverse=True), "the block comes first"


@pytest.mark.row("S-N-010")
@pytest.mark.parametrize(
    ("parser", "template", "text", "message", "num_tokens"),
    [
        ("qwen3", "CHATML", "I say.", Message("I say.", "", [], STOPPED), 0),
        ("qwen3", "CHATML", "", Message("", "", [], STOPPED), 0),
        ("qwen3", "OPENED", "I think.</think>Yes.", Message("Yes.", "I think.", [], STOPPED), 16),
        ("qwen3", "CLOSED", "I say.", Message("I say.", "", [], STOPPED), 0),
        ("deepseek-r1", "CHATML", "Hm.</think>Yes.", Message("Yes.", "Hm.", [], STOPPED), 11),
        ("deepseek-r1", "OPENED", "Hm.", Message("", "Hm.", [], STOPPED), 4),
        ("deepseek-r1", "CLOSED", "I say.", Message("I say.", "", [], STOPPED), 0),
    ],
)
async def test_the_block_may_be_open_closed_or_missing(
    start: StartApi, parser: str, template: str, text: str, message: Message, num_tokens: int
) -> None:
    source = {"OPENED": OPENED, "CLOSED": CLOSED}.get(template, tool_templates.CHATML)
    bench = await start_thinking(start, text, parser, source)
    assert await both(bench) == message
    assert await num_reasoning(bench) == num_tokens


@pytest.mark.row("S-N-010")
async def test_a_block_that_a_limit_cuts_off_is_all_reasoning(start: StartApi) -> None:
    bench = await start_thinking(start, f"{THOUGHT}I say.")
    found = await both(bench, max_tokens=14)
    assert found == Message("", "I thin", [], ("length", None))
    assert await num_reasoning(bench, max_tokens=14) == 14


@pytest.mark.row("S-N-010")
async def test_a_block_that_is_not_to_be_separated_stays_where_it_was(start: StartApi) -> None:
    bench = await start_thinking(start, f"{THOUGHT}I say.")
    found = await both(bench, separate_reasoning=False)
    assert found == Message(f"{THOUGHT}I say.", "", [], STOPPED)
    assert await num_reasoning(bench, separate_reasoning=False) == 25


@pytest.mark.row("S-N-010")
async def test_the_block_can_come_in_one_piece_at_its_end(start: StartApi) -> None:
    bench = await start_thinking(start, f"{THOUGHT}I say.")
    assert await both(bench, stream_reasoning=False) == Message("I say.", "I think.", [], STOPPED)
    (message,) = messages(await bench.post(CHAT, stream=True, stream_reasoning=False))
    assert message.order.count("reasoning_content") == 1
    (message,) = messages(
        await bench.post(CHAT, stream=True, stream_reasoning=False, max_tokens=12)
    )
    assert (message.reasoning, message.order) == ("I th", ["reasoning_content"])


async def test_without_a_parser_the_text_is_content_and_nothing_is_counted(start: StartApi) -> None:
    bench = await start_thinking(start, f"{THOUGHT}I say.", "none")
    answer = await bench.post(CHAT)
    assert messages(answer) == [Message(f"{THOUGHT}I say.", "", [], STOPPED)]
    assert "completion_tokens_details" not in answer.json()["usage"]
    assert "reasoning_tokens" not in answer.json()["usage"]


async def test_a_call_after_the_block_is_a_call_and_one_inside_is_not(start: StartApi) -> None:
    bench = await start_thinking(start, f"<think>{CALL}</think>Yes.\n{CALL}")
    bench.use_tokenizer(QWEN)
    found = await both(bench, tools=TOOLS)
    assert (found.reasoning, found.content, len(found.calls)) == (CALL, "Yes.", 1)
    assert found.finish == ("tool_calls", None)
    found = await both(bench, tools=TOOLS, parallel_tool_calls=False)
    assert (found.reasoning, found.content, len(found.calls)) == (CALL, "Yes.", 1)


async def test_markers_that_are_special_tokens_are_seen_and_not_shown(start: StartApi) -> None:
    bench = await start_thinking(start, (257, *b"Hm.", 258, *b"Yes."))
    bench.use_tokenizer(tokenizer(tool_templates.CHATML, "<think>", "</think>"))
    assert await both(bench) == Message("Yes.", "Hm.", [], STOPPED)
    assert await num_reasoning(bench) == 5


async def test_a_reply_that_goes_on_inside_the_block_ends_it(start: StartApi) -> None:
    bench = await start_thinking(start, " more.</think>Yes.")
    for content, expected in (
        ("<think>Some", Message("Yes.", "more.", [], STOPPED)),
        ("<think>Some</think>And", Message(" more.</think>Yes.", "", [], STOPPED)),
        ("Some", Message(" more.</think>Yes.", "", [], STOPPED)),
    ):
        last = {"role": "assistant", "content": content}
        found = await both(bench, messages=[*MESSAGES, last], continue_final_message=True)
        assert found == expected, content


async def test_thoughts_of_the_history_reach_the_template(start: StartApi) -> None:
    template = "{% for m in messages %}{{ m.reasoning_content | default('-') }}|{% endfor %}"
    bench = await start_thinking(start, "ok", template=template)
    said = {"role": "assistant", "content": "b", "reasoning_content": "a thought"}
    await bench.post(CHAT, messages=[*MESSAGES, said, *MESSAGES])
    assert bytes(bench.prompts()[-1]) == b"-|a thought|-|"


async def test_every_token_of_the_block_has_its_logprob_once(start: StartApi) -> None:
    bench = await start_thinking(start, f"{THOUGHT}I say.")
    whole = (await bench.post(CHAT, logprobs=True)).json()["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in whole) == f"{THOUGHT}I say.<eos>"
    for fields in ({}, {"stream_reasoning": False}):
        pieces = (await bench.post(CHAT, stream=True, logprobs=True, **fields)).pieces()
        shown = [
            entry for piece in pieces for entry in (piece["logprobs"] or {"content": []})["content"]
        ]
        assert shown == whole
