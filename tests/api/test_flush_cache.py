"""`/flush_cache`: an idle server forgets all prefixes, a busy one forgets nothing."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import CHAT, COMPLETIONS, JSON, ApiBench, StartApi
from tests.embeddings.kit import EMBEDDINGS, make_bench, open_api, post
from trioserve.core import SamplingParams, StopParams
from trioserve.engine.request import GenerateRequest, Generation

LONG = "The same long question, once more. "
CACHED = 32


async def flush(bench: ApiBench, method: str = "POST") -> Answer:
    return await bench.ask(method, "/flush_cache")


def check_flushed(answer: Answer) -> None:
    assert (answer.status, answer.body) == (200, b"Cache flushed.")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def check_busy(answer: Answer) -> None:
    message = "Invalid request: the cache cannot be flushed while requests run or wait"
    check_error(answer, 400, message, code="invalid_value")


async def cached_of(bench: ApiBench, **fields: Any) -> int:
    """Sends the long prompt; how much of it was cached."""
    asked = {"prompt": LONG, "return_cached_tokens_details": True, "max_tokens": 1, **fields}
    answer = await bench.post(COMPLETIONS, **asked)
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.row("S-N-017")
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_idle_server_forgets_every_prefix(start: StartApi, method: str) -> None:
    bench = await start()
    for salt in (None, "a"):
        assert await cached_of(bench, cache_salt=salt) == 0
        assert await cached_of(bench, cache_salt=salt) == CACHED
    assert await bench.metric("pages", state="cached") > 0
    check_flushed(await flush(bench, method))
    assert await bench.metric("pages", state="cached") == 0
    assert await bench.metric("pages", state="free") == await bench.metric("pages_total")
    for salt in (None, "a"):
        assert await cached_of(bench, cache_salt=salt) == 0
    # With nothing there it says the same.
    check_flushed(await flush(bench, method))
    check_flushed(await flush(bench, method))
    bench.check_idle()


@pytest.mark.row("S-N-017")
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_while_one_runs_nothing_is_forgotten(start: StartApi, method: str) -> None:
    bench = await start("abc")
    await cached_of(bench)
    bench.device.is_automatic = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.post(CHAT))
        await bench.device.wait_submitted()
        cached = await bench.metric("pages", state="cached")
        check_busy(await flush(bench, method))
        assert await bench.metric("pages", state="cached") == cached
        bench.finish_all()
    assert await cached_of(bench) == CACHED
    check_flushed(await flush(bench, method))


@pytest.mark.row("S-N-017")
async def test_while_one_waits_nothing_is_forgotten(start: StartApi) -> None:
    """Its reader takes nothing, so it has no slot, and no step is in flight: still it counts."""
    bench = await start("x" * 200)
    generation = Generation(tuple(LONG.encode()), 150, SamplingParams(), StopParams())
    with bench.engine.open_stream(GenerateRequest("stalled", (generation,), 1)):
        await trio.testing.wait_all_tasks_blocked()
        (load,) = (await bench.get("/v1/loads")).json()["loads"]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 1)
        assert not bench.device.unfinished
        check_busy(await flush(bench))
    check_flushed(await flush(bench))


@pytest.mark.row("S-N-017")
async def test_a_step_in_flight_for_one_that_has_left_does_not_keep_the_server_busy(
    start: StartApi,
) -> None:
    bench = await start("abc", depth=1)
    assert await cached_of(bench) == 0
    bench.device.is_automatic = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.post(COMPLETIONS, prompt=LONG + "and more of it"))
        await bench.device.wait_submitted()
        nursery.cancel_scope.cancel()
    assert bench.device.unfinished
    check_flushed(await flush(bench))
    # What the step reads and writes is not given to others before it has ended.
    assert await bench.metric("pages", state="cached") == 0
    assert await bench.metric("pages", state="quarantined") > CACHED / 4
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    assert await bench.metric("pages", state="free") == await bench.metric("pages_total")
    assert await cached_of(bench) == 0
    bench.check_idle()


@pytest.mark.row("S-N-017")
async def test_neither_a_body_nor_its_type_matters(start: StartApi) -> None:
    bench = await start()
    for data, headers in ((b"", {}), (b"{}", JSON), (b"\xff", JSON), (b"x", {})):
        check_flushed(await bench.ask("POST", "/flush_cache", data=data, headers=headers))
    async with bench.wire.connect() as client:
        await client.send("POST", "/flush_cache", body=b"{}")
        response = await client.read_response()
        check_flushed(Answer(response.status, response.headers, response.body))


@pytest.mark.row("S-N-017")
async def test_a_server_that_does_not_serve_says_so(start: StartApi) -> None:
    bench = await start(is_loaded=False)
    answer = await flush(bench)
    assert answer.status == 503
    assert answer.json()["error"]["code"] == "model_loading"


@pytest.mark.row("S-N-017")
@pytest.mark.parametrize("is_alone", [False, True])
async def test_texts_to_embed_keep_a_server_busy_as_well(
    nursery: trio.Nursery, is_alone: bool
) -> None:
    bench = make_bench(is_alone=is_alone)
    await nursery.start(bench.engine.run)
    await bench.engine.ready.wait()
    api = open_api(bench, nursery)
    check_flushed(await flush(api))
    api.device.is_automatic = False
    async with trio.open_nursery() as asking:
        asking.start_soon(lambda: post(api, EMBEDDINGS, input="a text"))
        await api.device.wait_submitted()
        check_busy(await flush(api))
        api.finish_all()
    check_flushed(await flush(api))
