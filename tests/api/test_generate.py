"""`/generate`: SGLang's own request and answer, whole and streamed."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import StartApi
from tests.api.native import META, both, generate
from trioserve.testing.fake_text import EOS_ID


@pytest.mark.row("S-N-014")
@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("prompt", [{"text": "Once"}, {"input_ids": [79, 110, 99, 101]}])
async def test_one_prompt_is_one_object(
    start: StartApi, method: str, prompt: dict[str, Any]
) -> None:
    bench = await start("hello")
    answer = await generate(bench, method, **prompt, rid="mine")
    assert answer.headers["content-type"] == "application/json"
    reply = answer.json()
    latency = reply["meta_info"].pop("e2e_latency")
    assert isinstance(latency, float)
    assert 0 <= latency < 10
    assert reply == {
        "text": "hello",
        "output_ids": [*b"hello", EOS_ID],
        "meta_info": {
            "id": "mine",
            "finish_reason": {"type": "stop", "matched": EOS_ID},
            "prompt_tokens": 4,
            "completion_tokens": 6,
            "cached_tokens": 0,
            "weight_version": "default",
        },
    }
    assert bench.prompts() == [tuple(b"Once")]
    assert (await generate(bench, **prompt)).json()["meta_info"]["id"] != "mine"
    bench.check_idle()


@pytest.mark.row("S-N-014")
@pytest.mark.parametrize(
    ("body", "num_objects"),
    [
        ({"text": ["Once"]}, 1),
        ({"text": ["Once", "Twice", "T"]}, 3),
        ({"input_ids": [[1, 2], [3]]}, 2),
        ({"text": "Once", "sampling_params": {"n": 3}}, 3),
        ({"text": ["Once", "Twice"], "sampling_params": {"n": 2}}, 4),
    ],
)
async def test_a_batch_or_several_samples_are_a_list_in_the_order_of_the_prompts(
    start: StartApi, body: dict[str, Any], num_objects: int
) -> None:
    bench = await start(*(f"answer {index}" for index in range(num_objects)))
    answers = await both(bench, **body)
    assert [answer["text"] for answer in answers] == [f"answer {i}" for i in range(num_objects)]
    assert all(answer["meta_info"].keys() == META for answer in answers)
    prompts = body.get("text", body.get("input_ids"))
    lengths = [len(prompt) for prompt in prompts] if isinstance(prompts, list) else [4]
    num_samples = num_objects // len(lengths)
    expected = [length for length in lengths for _ in range(num_samples)]
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == expected


@pytest.mark.row("S-N-014")
@pytest.mark.parametrize(
    ("rid", "ids"),
    [("job", ["job_0", "job_1"]), (["a", "b"], ["a", "b"])],
)
async def test_each_prompt_of_a_batch_has_its_own_id(start: StartApi, rid: Any, ids: Any) -> None:
    bench = await start("x")
    answers = await both(bench, text=["p", "q"], rid=rid)
    assert [answer["meta_info"]["id"] for answer in answers] == ids
    unnamed = [answer["meta_info"]["id"] for answer in await both(bench, text=["p", "q"])]
    assert len(set(unnamed)) == 2


@pytest.mark.row("S-N-014")
async def test_a_stream_has_all_of_the_text_so_far_in_each_event(start: StartApi) -> None:
    bench = await start("a日b", "cd", is_automatic=False)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await generate(bench, text=["p", "q"], stream=True, rid="r"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        for _ in range(10):
            if not answers:
                await bench.finish_step()
    (answer,) = answers
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = answer.events()
    texts = [[e["text"] for e in events if e["index"] == index] for index in range(2)]
    # Nothing is sent while a character is not whole.
    assert texts == [["a", "a日", "a日b", "a日b"], ["c", "cd", "cd"]]
    for event in events:
        assert event["meta_info"]["id"] == f"r_{event['index']}"
        is_last = event["meta_info"]["finish_reason"] is not None
        assert ("e2e_latency" in event["meta_info"]) == is_last
        assert bytes(event["output_ids"][: len(event["text"].encode())]) == event["text"].encode()
    counts = [e["meta_info"]["completion_tokens"] for e in events if e["index"] == 0]
    assert counts == [1, 4, 5, 6]
    bench.finish_all()


@pytest.mark.row("S-N-014")
@pytest.mark.parametrize(
    ("sampling", "reason", "text"),
    [
        ({}, {"type": "stop", "matched": EOS_ID}, "one two three"),
        ({"max_new_tokens": 3}, {"type": "length", "length": 3}, "one"),
        ({"max_new_tokens": 0}, {"type": "length", "length": 0}, ""),
        ({"stop": "two"}, {"type": "stop", "matched": "two"}, "one "),
        ({"stop": ["x", " t"], "no_stop_trim": True}, {"type": "stop", "matched": " t"}, "one t"),
        ({"stop_regex": "t.r"}, {"type": "stop", "matched": "t.r"}, "one two "),
        ({"stop_token_ids": [ord("w")]}, {"type": "stop", "matched": ord("w")}, "one t"),
        ({"stop": "o", "min_new_tokens": 3}, {"type": "stop", "matched": "o"}, "one tw"),
        (
            {"ignore_eos": True, "max_new_tokens": 15, "skip_special_tokens": False},
            {"type": "length", "length": 15},
            "one two three<eos><eos>",
        ),
    ],
)
async def test_what_ends_a_sample_is_named(
    start: StartApi, sampling: dict[str, Any], reason: dict[str, Any], text: str
) -> None:
    bench = await start("one two three")
    (answer,) = await both(bench, text="Once", sampling_params=sampling)
    assert answer["meta_info"]["finish_reason"] == reason
    assert answer["text"] == text
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"])


async def test_a_seed_repeats_and_samples_of_it_differ(start: StartApi) -> None:
    bench = await start()
    body = {"text": "Once", "sampling_params": {"n": 3, "sampling_seed": 1, "max_new_tokens": 8}}
    first, second = [
        [each["output_ids"] for each in (await generate(bench, **body)).json()] for _ in range(2)
    ]
    assert first == second
    assert len(set(map(tuple, first))) == 3


async def test_a_failure_is_500_or_an_event_and_others_go_on(start: StartApi) -> None:
    bench = await start(poison=ord("!"))
    assert (await generate(bench, text="bad!")).status == 500
    events = (await generate(bench, text=["bad!", "good"], stream=True)).events()
    assert events[-1]["error"]["code"] == "internal_error"
    assert (await generate(bench, text="good")).status == 200
    bench.check_idle()


async def test_a_silent_stream_is_pinged(
    start: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start("x", is_automatic=False, sse_ping_interval=2)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await generate(bench, text="a", stream=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await bench.device.wait_submitted()
        await trio.sleep(5)
        bench.finish_all()
    assert answers[0].body.startswith(b": ping\n\n: ping\n\ndata: ")
    assert answers[0].body.endswith(b"data: [DONE]\n\n")


@pytest.mark.row("S-E-006")
async def test_a_full_queue_and_a_server_that_drains_refuse_it(start: StartApi) -> None:
    bench = await start("x", is_automatic=False, max_running_requests=1, max_queued_requests=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: generate(bench, text="a"))
        await bench.device.wait_submitted()
        refused = await generate(bench, text="b", stream=True)
        check_error(refused, 503, "The request queue is full.", code="overloaded")
        assert refused.headers["retry-after"] == "1"
        bench.finish_all()
    await bench.engine.drain(1)
    refused = await generate(bench, text="b")
    check_error(refused, 503, "The server is shutting down.", code="shutting_down")
