"""How many prompt tokens were cached: in usage, in `sglext`, and on `/generate`."""

from pathlib import Path
from typing import Any

import pytest
import trio
from openai.types import Completion
from openai.types.chat import ChatCompletion
from trio.testing import MockClock

from tests.api.answers import Answer
from tests.api.kit import COMPLETIONS, ENDPOINTS, ApiBench, StartApi
from tests.api.native import generate
from trioserve.api.cache_report import CacheReport, cached_details
from trioserve.core import CachedTokens

PAGE = 4
LONG = "The same long question, once more. "
assert len(LONG) % PAGE != 0
CACHED = len(LONG) // PAGE * PAGE
DETAILS = {"return_cached_tokens_details": True}


def prompt_for(path: str, text: str) -> dict[str, Any]:
    """The text as the model's whole prompt, on either endpoint."""
    return {"prompt": text} if path == COMPLETIONS else {"prompt": text, "messages": None}


async def ask(bench: ApiBench, path: str, text: str = LONG, **fields: Any) -> Answer:
    answer = await bench.post(path, **{"max_tokens": 3, **prompt_for(path, text), **fields})
    assert answer.status == 200, answer.body
    return answer


def cached_of(answer: Answer) -> int | None:
    """`cached_tokens` of a whole answer; None if it says nothing about them."""
    details = answer.json()["usage"]["prompt_tokens_details"]
    assert details is None or details.keys() == {"cached_tokens"}
    return None if details is None else int(details["cached_tokens"])


@pytest.mark.row("S-C-041", "S-C-060", "S-C-063", "S-C-064", "S-C-065", "S-C-066", "S-H-033")
@pytest.mark.row("S-X-09")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_request_that_asks_is_told_what_was_cached_and_where(
    start: StartApi, path: str
) -> None:
    bench = await start()
    for num_cached in (0, CACHED, CACHED):
        reply = (await ask(bench, path, **DETAILS)).json()
        assert reply["usage"]["prompt_tokens"] == len(LONG)
        assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": num_cached}
        # No storage tier: its two members are absent, and not null.
        details = {"device": num_cached, "host": 0}
        assert reply["sglext"] == {"cached_tokens_details": details}
        model = Completion if path == COMPLETIONS else ChatCompletion
        model.model_validate(reply)


@pytest.mark.row("S-C-041", "S-C-060", "S-C-061", "S-H-033", "S-X-09")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("fields", [{}, {"return_cached_tokens_details": False}])
async def test_a_server_that_reports_says_it_in_usage_and_nowhere_else(
    start: StartApi, path: str, fields: dict[str, Any]
) -> None:
    bench = await start(enable_cache_report=True)
    assert [cached_of(await ask(bench, path, **fields)) for _ in range(2)] == [0, CACHED]
    assert b"sglext" not in (await ask(bench, path, **fields)).body


@pytest.mark.row("S-C-041", "S-C-060", "S-C-061", "S-H-033")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("fields", [{}, {"return_cached_tokens_details": False}])
async def test_nothing_is_said_unless_somebody_asks(
    start: StartApi, path: str, fields: dict[str, Any]
) -> None:
    bench = await start()
    for _ in range(2):
        answer = await ask(bench, path, **fields)
        assert cached_of(answer) is None
        assert b"sglext" not in answer.body


@pytest.mark.row("S-C-041", "S-C-063", "S-C-064", "S-H-033")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("includes_usage", [False, True])
@pytest.mark.parametrize("is_continuous", [False, True])
async def test_in_a_stream_it_comes_after_the_hidden_states_and_before_the_usage(
    start: StartApi, path: str, includes_usage: bool, is_continuous: bool
) -> None:
    bench = await start()
    await ask(bench, path)
    options = {"include_usage": includes_usage, "continuous_usage_stats": is_continuous}
    answer = await ask(
        bench, path, **DETAILS, n=2, stream=True, return_hidden_states=True, stream_options=options
    )
    *chunks, extension = answer.events()
    totals = {
        "prompt_tokens": len(LONG),
        "completion_tokens": 6,
        "total_tokens": len(LONG) + 6,
        "prompt_tokens_details": {"cached_tokens": CACHED},
    }
    if includes_usage:
        usage = extension
        extension = chunks.pop()
        assert (usage["choices"], usage["usage"]) == ([], totals)
        assert "sglext" not in usage
    frame = {name: chunks[0][name] for name in ("id", "object", "created", "model")}
    expected: dict[str, Any] = {
        **frame,
        "choices": [],
        "sglext": {"cached_tokens_details": {"device": CACHED, "host": 0}},
    }
    if is_continuous:
        expected["usage"] = totals
    elif includes_usage:
        expected["usage"] = None
    assert extension == expected
    assert all("sglext" not in chunk for chunk in chunks)
    for chunk in chunks:
        (choice,) = chunk["choices"]
        if is_continuous:
            usage = chunk["usage"]
            assert usage["prompt_tokens_details"] == {"cached_tokens": CACHED}
            assert usage["total_tokens"] == len(LONG) + usage["completion_tokens"]
    assert "hidden_states" in (choice if path == COMPLETIONS else choice["delta"])


@pytest.mark.row("S-C-060", "S-C-061")
@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_completions_stream_without_options_has_it_on_its_last_finish_chunk(
    start: StartApi, is_asked: bool
) -> None:
    bench = await start(enable_cache_report=not is_asked)
    await ask(bench, COMPLETIONS)
    fields = DETAILS if is_asked else {}
    events = (await ask(bench, COMPLETIONS, stream=True, **fields)).events()
    if is_asked:
        assert "usage" not in events[-1]
        assert events.pop()["sglext"]
    assert events[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": CACHED}
    assert all("sglext" not in event for event in events)


@pytest.mark.row("S-C-060")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_of_several_samples_only_the_first_counts(
    start: StartApi, path: str, stream: bool
) -> None:
    bench = await start()
    for num_cached in (0, CACHED):
        options = {"stream_options": {"include_usage": True}} if stream else {}
        answer = await ask(bench, path, **DETAILS, **options, n=3, stream=stream)
        usage = (answer.events()[-1] if stream else answer.json())["usage"]
        assert usage["prompt_tokens"] == len(LONG)
        assert usage["prompt_tokens_details"] == {"cached_tokens": num_cached}
    # The others of the first request had the prompt computed once, all the same.
    fed = [row.end - row.start for plan in bench.runner.plans for row in plan.rows]
    assert sum(fed) < 2 * len(LONG) + 2 * 3 * 3


@pytest.mark.row("S-C-060", "S-C-063")
async def test_the_prompts_of_a_batch_are_summed_and_the_first_is_described(
    start: StartApi,
) -> None:
    bench = await start()
    await ask(bench, COMPLETIONS, "abcdefgh" + "x")
    prompts = ["abcd" + "y" * 5, "abcdefgh" + "z" * 7, "nobody's own text"]
    reply = (await ask(bench, COMPLETIONS, prompt=prompts, n=2, **DETAILS)).json()
    assert reply["usage"]["prompt_tokens"] == 9 + 15 + 17
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 4 + 8 + 0}
    assert reply["sglext"] == {"cached_tokens_details": {"device": 4, "host": 0}}


@pytest.mark.row("S-C-060")
async def test_a_prompt_that_is_twice_in_a_batch_is_computed_once(start: StartApi) -> None:
    bench = await start()
    answer = await ask(bench, COMPLETIONS, prompt=[LONG, LONG], **DETAILS)
    assert cached_of(answer) == CACHED
    assert len(set(answer.texts())) == 2, "each is a sample of its own"
    assert answer.json()["sglext"]["cached_tokens_details"]["device"] == 0


async def test_the_candidates_of_best_of_are_one_prompt(start: StartApi) -> None:
    bench = await start()
    answers = [await ask(bench, COMPLETIONS, best_of=3, **DETAILS) for _ in range(2)]
    assert [cached_of(answer) for answer in answers] == [0, CACHED]


@pytest.mark.row("S-C-060")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_what_was_generated_is_cached_for_the_next_turn(start: StartApi, path: str) -> None:
    bench = await start()
    (text,) = (await ask(bench, path, max_tokens=14)).texts()
    assert len(text) == 14
    answer = await ask(bench, path, f"{LONG}{text} And now?", **DETAILS)
    # The last token of an answer is never fed.
    assert cached_of(answer) == (len(LONG) + len(text) - 1) // PAGE * PAGE


@pytest.mark.row("S-C-060")
async def test_the_last_token_of_a_prompt_is_always_computed(start: StartApi) -> None:
    bench = await start()
    for length in (1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1):
        text = chr(ord("a") + length) * length
        assert cached_of(await ask(bench, COMPLETIONS, text, **DETAILS)) == 0
        cached = cached_of(await ask(bench, COMPLETIONS, text, **DETAILS))
        assert cached == (length - 1) // PAGE * PAGE, length


@pytest.mark.row("S-N-014", "S-C-063", "S-C-064")
@pytest.mark.parametrize("stream", [False, True])
async def test_generate_says_it_of_each_prompt(start: StartApi, stream: bool) -> None:
    bench = await start()
    await ask(bench, COMPLETIONS, "abcdefgh" + "x")
    body: dict[str, Any] = {
        "text": ["abcd" + "y" * 5, "nobody's", "abcdefgh" + "z"],
        "sampling_params": {"n": 2, "max_new_tokens": 2},
        "stream": stream,
    }
    for fields in ({}, {"return_cached_tokens_details": False}):
        answer = await generate(bench, **body, **fields)
        assert b"sglext" not in answer.body
    assert (await bench.ask("POST", "/flush_cache")).status == 200
    await ask(bench, COMPLETIONS, "abcdefgh" + "x")
    answer = await generate(bench, **body, **DETAILS)
    replies = answer.events() if stream else answer.json()
    ended: dict[int, dict[str, Any]] = {}
    for number, reply in enumerate(replies):
        index = reply["index"] if stream else number
        num_cached = (4, 4, 0, 0, 8, 8)[index]
        assert reply["meta_info"]["cached_tokens"] == num_cached
        if reply["meta_info"]["finish_reason"] is None:
            assert "sglext" not in reply
        else:
            ended[index] = reply["sglext"]
            details = {"device": num_cached, "host": 0}
            assert reply["sglext"] == {"cached_tokens_details": details}
    assert len(ended) == 6


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_request_that_ends_before_its_first_step_had_nothing_cached(
    start: StartApi, autojump_clock: MockClock, path: str
) -> None:
    bench = await start(is_automatic=False, request_timeout=5.0, max_running_requests=1)
    answers: list[Answer] = []

    async def second() -> None:
        answers.append(await bench.post(path, **DETAILS))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.post(path))
        await bench.device.wait_submitted()
        nursery.start_soon(second)
    (answer,) = answers
    assert answer.joined()[0].finish == ("abort", None)
    assert cached_of(answer) == 0


@pytest.mark.row("S-C-060", "S-N-018", "S-N-019")
async def test_counters_and_loads_agree_with_what_clients_are_told(start: StartApi) -> None:
    bench = await start(enable_cache_report=True)
    answers = [await ask(bench, path, n=2) for path in (*ENDPOINTS, *ENDPOINTS)]
    answers.append(await ask(bench, COMPLETIONS, prompt=[LONG + "And so", "something else", LONG]))
    told = sum(cached_of(answer) or 0 for answer in answers)
    assert told == 5 * CACHED
    num_prompt = sum(answer.json()["usage"]["prompt_tokens"] for answer in answers)
    assert await bench.metric("cached_tokens_total") == told
    share = await bench.metric("cache_hit_rate")
    assert share == pytest.approx(told / num_prompt)
    (load,) = (await bench.get("/v1/loads")).json()["loads"]
    assert load["cache_hit_rate"] == share


@pytest.mark.row("S-M-005")
@pytest.mark.parametrize("is_on", [False, True])
async def test_the_server_says_whether_it_reports(start: StartApi, is_on: bool) -> None:
    bench = await start(enable_cache_report=is_on)
    info = (await bench.get("/get_model_info")).json()
    assert info["server_config"]["enable_cache_report"] is is_on
    assert (await bench.get("/server_info")).json()["enable_cache_report"] is is_on


@pytest.mark.row("S-C-063", "S-C-064", "S-C-065", "S-C-066")
def test_storage_shows_only_where_there_is_such_a_tier() -> None:
    cached = CachedTokens(device=32, host=16, storage=48)
    assert cached_details(cached, None) == {"device": 32, "host": 16}
    assert cached_details(cached, "lmdb") == {
        "device": 32,
        "host": 16,
        "storage": 48,
        "storage_backend": "lmdb",
    }
    # Also where it had nothing.
    assert cached_details(CachedTokens(device=5), "lmdb")["storage"] == 0
    assert CacheReport().storage_backend is None


@pytest.mark.row("S-C-064", "S-C-065", "S-C-066")
async def test_tokens_from_the_tiers_are_told_apart(start: StartApi, tmp_path: Path) -> None:
    host_bytes = 2 * PAGE * 4  # two pages of the fake model
    bench = await start(cache_storage=str(tmp_path), host_cache_bytes=host_bytes)
    await ask(bench, COMPLETIONS)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert bench.engine.batch.flush_prefixes()
    # Host memory has the last two pages alone, which are of no use without those before them.
    for source in ("storage", "device"):
        reply = (await ask(bench, COMPLETIONS, **DETAILS)).json()
        told = {"device": 0, "host": 0, "storage": 0, source: CACHED}
        assert reply["sglext"]["cached_tokens_details"] == told | {"storage_backend": "sqlite"}
        assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": CACHED}
    assert await bench.metric("cache_tier_reads_total", tier="storage", result="hit") > 0
    assert await bench.metric("cache_tier_pages", tier="host") == 2
    assert await bench.metric("cache_tier_bytes", tier="host") == host_bytes
