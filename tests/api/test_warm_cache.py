"""Whatever is cached, answers are those of a cold server: texts, logprobs and hidden states."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, ApiBench, StartApi
from tests.api.native import GENERATE, generate

PAGE = 16
LENGTHS = (15, 16, 17, 33)
TEXT = "The quick brown fox jumps over the lazy dog, and then over me."
READ: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"echo": True, "logprobs": 3},
    CHAT: {"logprobs": True, "top_logprobs": 3},
    GENERATE: {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 3},
}
PATHS = tuple(READ)


async def ask(bench: ApiBench, path: str, text: str, **fields: Any) -> Any:
    """What was answered, without what differs between two answers alike, and what was cached."""
    if path == GENERATE:
        sampling = {"max_new_tokens": 5, "n": 2}
        answer = await generate(bench, text=text, sampling_params=sampling, **fields)
        assert answer.status == 200, answer.body
        replies = answer.json()
        for reply in replies:
            for name in ("id", "cached_tokens", "e2e_latency"):
                del reply["meta_info"][name]
        return replies
    messages = {"messages": None} if path == CHAT else {}
    answer = await bench.post(path, prompt=text, max_tokens=5, n=2, **messages, **fields)
    assert answer.status == 200, answer.body
    return answer.json()["choices"]


@pytest.mark.case(101)
@pytest.mark.row("S-N-004")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("order", [LENGTHS, LENGTHS[::-1], (17, 33, 15, 16)])
async def test_logprobs_of_prompts_are_the_same_twice_and_in_any_order(
    start: StartApi, path: str, order: tuple[int, ...]
) -> None:
    cold = await start(page_size=PAGE, disable_prefix_cache=True)
    warm = await start(page_size=PAGE)
    for length in (*order, *order):
        text = TEXT[:length]
        assert await ask(warm, path, text, **READ[path]) == await ask(
            cold, path, text, **READ[path]
        )
        # And without the prompt's, so that the next one finds pages that were read warm.
        assert await ask(warm, path, text) == await ask(cold, path, text)
    assert await warm.metric("cached_tokens_total") > 0
    assert await cold.metric("cached_tokens_total") == 0
    warm.check_idle()


@pytest.mark.case(101)
@pytest.mark.row("S-N-004")
async def test_prompts_that_part_within_a_page_have_their_own_logprobs(start: StartApi) -> None:
    cold = await start(page_size=PAGE, disable_prefix_cache=True)
    warm = await start(page_size=PAGE)
    texts = [TEXT[:16] + "x", TEXT[:15] + "yz", TEXT[:33], TEXT[:31] + "!!!", TEXT[:32] + "?"]
    for text in (*texts, *reversed(texts)):
        for fields in (READ[COMPLETIONS], {"logprobs": 2}, {"echo": True, "max_tokens": 0}):
            fields = {"max_tokens": 4, "n": 1, **fields}
            answers = [
                (await bench.post(COMPLETIONS, prompt=text, **fields)).json()["choices"]
                for bench in (warm, cold)
            ]
            assert answers[0] == answers[1], (text, fields)


@pytest.mark.case(101)
@pytest.mark.row("S-N-014")
async def test_what_lies_before_the_first_logprob_asked_for_may_come_from_the_cache(
    start: StartApi,
) -> None:
    cold = await start(page_size=PAGE, disable_prefix_cache=True)
    warm = await start(page_size=PAGE)
    text = TEXT[:50]
    await ask(warm, GENERATE, text)
    for first in (-1, 0, 1, 16, 17, 18, 32, 33, 34, 49, 50):
        fields = {**READ[GENERATE], "logprob_start_len": first}
        assert await ask(warm, GENERATE, text, **fields) == await ask(
            cold, GENERATE, text, **fields
        )
        reply = (await generate(warm, text=text, **fields)).json()
        last = len(text) - 1 if first in (-1, 50) else max(0, first - 1)
        # The token before the first one asked for is fed, for the logits after it.
        assert reply["meta_info"]["cached_tokens"] == last // PAGE * PAGE, first


@pytest.mark.row("S-C-039", "S-H-039")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("length", LENGTHS)
async def test_hidden_states_are_those_of_a_cold_server(
    start: StartApi, path: str, length: int
) -> None:
    cold = await start(page_size=PAGE, disable_prefix_cache=True)
    warm = await start(page_size=PAGE)
    await ask(warm, path, TEXT[:33])
    fields = {"return_hidden_states": True}
    for _ in range(2):
        theirs = await ask(cold, path, TEXT[:length], **fields)
        assert await ask(warm, path, TEXT[:length], **fields) == theirs
    assert "hidden_states" in (theirs[0]["meta_info"] if path == GENERATE else theirs[0])


@pytest.mark.case(7)
@pytest.mark.row("S-N-004")
@pytest.mark.parametrize("first", [{}, READ[COMPLETIONS]])
async def test_a_cancelled_request_leaves_what_was_computed_and_nothing_else(
    start: StartApi, first: dict[str, Any]
) -> None:
    """Three chunks: one is computed, one is in flight, one was never begun."""
    text = (TEXT * 3)[:150]
    cold = await start(disable_prefix_cache=True)
    bench = await start(is_automatic=False, depth=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.wire_request(COMPLETIONS, prompt=text, **first))
        await bench.finish_step()
        await bench.device.wait_submitted()
        nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
    fed = sum(row.end - row.start for row in bench.runner.plans[0].rows)
    assert 0 < fed < len(text)

    resent = {"prompt": text, "max_tokens": 4}
    answer = await bench.post(COMPLETIONS, **resent, return_cached_tokens_details=True)
    reply = answer.json()
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": fed}
    assert reply["choices"] == (await cold.post(COMPLETIONS, **resent)).json()["choices"]
    read = {**resent, **READ[COMPLETIONS]}
    for _ in range(2):
        choices = (await bench.post(COMPLETIONS, **read)).json()["choices"]
        assert choices == (await cold.post(COMPLETIONS, **read)).json()["choices"]


@pytest.mark.case(98, 106)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_one_that_leaves_takes_no_shared_page_from_another(
    start: StartApi, path: str
) -> None:
    prefix = TEXT[:40]  # ten pages
    messages = {"messages": None} if path == CHAT else {}
    fields: dict[str, Any] = {**messages, "max_tokens": 12}
    cold = await start(disable_prefix_cache=True)
    expected = (await cold.post(path, prompt=f"{prefix}B stays", **fields)).texts()
    bench = await start(depth=1)
    await bench.post(path, prompt=prefix + "!", **fields)
    bench.device.is_automatic = False
    texts: list[str] = []

    async def stay() -> None:
        texts.extend((await bench.post(path, prompt=f"{prefix}B stays", **fields)).texts())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stay)
        async with trio.open_nursery() as leaving:
            leaving.start_soon(
                lambda: bench.wire_request(path, prompt=f"{prefix}A leaves", **fields)
            )
            for _ in range(3):
                await bench.finish_step()
            (load,) = (await bench.get("/v1/loads")).json()["loads"]
            assert load["num_running_reqs"] == 2
            leaving.cancel_scope.cancel()
        await bench.finish_step()
        bench.engine.batch.check()
        # Those that both had are still in use, and none of them is to be evicted.
        assert bench.engine.batch.pool.statistics().cached >= 10
        tree = bench.engine.batch.scheduler.tree
        assert tree.num_pages - tree.num_unused >= 10
        bench.finish_all()
    assert texts == expected
    bench.check_idle()
