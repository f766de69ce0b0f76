"""Embeddings over a connection: clients that leave, servers that end, and what is counted."""

import logging

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import ApiBench
from tests.embeddings.conftest import StartApi
from tests.embeddings.kit import (
    CHAT_MODEL,
    EMBEDDER,
    EMBEDDINGS,
    check_vectors,
    post,
    vectors_of,
)
from trioserve.testing.http import HttpResponse


async def wire_post(api: ApiBench, *texts: str) -> HttpResponse:
    """Over a connection, which is closed when the caller is cancelled."""
    async with api.wire.connect() as client:
        return await client.post_json(EMBEDDINGS, {"model": EMBEDDER, "input": list(texts)})


async def check_idle(api: ApiBench) -> None:
    await trio.testing.wait_all_tasks_blocked()
    batch = api.engine.embedding_batch
    batch.check()
    assert batch.is_idle
    assert not batch.requests


async def collect(answers: list[Answer], api: ApiBench, text: str) -> None:
    answers.append(await post(api, input=text))


@pytest.mark.row("S-G-004")
@pytest.mark.parametrize("num_in_flight", [0, 1, 2])
async def test_a_client_that_leaves_takes_its_texts_along(
    api: StartApi, num_in_flight: int
) -> None:
    """In the queue, or with one or two steps of its own on the device."""
    bench = await api(
        depth=max(1, num_in_flight), is_automatic=False, max_step_tokens=1, max_running_requests=2
    )
    batch = bench.engine.embedding_batch
    async with trio.open_nursery() as others:
        if num_in_flight == 0:
            others.start_soon(wire_post, bench, "a", "b")
            await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire_post, bench, "x", "y", "z")
            await trio.testing.wait_all_tasks_blocked()
            assert len(batch.requests) == (2 if num_in_flight == 0 else 1)
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert len(batch.requests) == (1 if num_in_flight == 0 else 0)
        bench.finish_all()
    await check_idle(bench)
    planned = [bytes(ids) for plan in _plans(bench) for ids in plan]
    assert planned == [[b"a", b"b"], [b"x"], [b"x", b"y"]][num_in_flight]
    assert await bench.metric("aborted_requests_total", reason="cancelled") == 1
    outcome = {"endpoint": EMBEDDINGS, "status": "cancelled"}
    assert await bench.metric("requests_total", **outcome) == 1
    check_vectors(vectors_of(await post(bench, input="after")), b"after")


def _plans(api: ApiBench) -> list[tuple[tuple[int, ...], ...]]:
    return [plan.inputs for plan in api.engine.embedding_batch.model.runner.plans]


async def test_a_request_that_waits_too_long_gets_503(
    api: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await api(is_automatic=False, max_running_requests=1, queue_timeout=2.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: post(bench, input="holds the device"))
        await trio.testing.wait_all_tasks_blocked()
        answer = await post(bench, input="waits")
        message = "The request waited longer than 2.0 s for a free slot."
        check_error(answer, 503, message, code="queue_timeout")
        assert answer.headers["retry-after"] == "1"
        bench.finish_all()
    await check_idle(bench)


async def test_a_request_that_runs_too_long_gets_503(
    api: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await api(is_automatic=False, request_timeout=2.0)
    answer = await post(bench, input="a")
    check_error(answer, 503, "The request did not finish within 2 s.", code="overloaded")
    bench.finish_all()
    await check_idle(bench)


async def test_the_end_of_a_drain_answers_503(
    api: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await api(is_automatic=False)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, answers, bench, "a")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(bench.engine.drain, 1.0)
    for answer in (*answers, await post(bench, input="b")):
        check_error(answer, 503, "The server is shutting down.", code="shutting_down")
        assert answer.headers["retry-after"] == "1"
    bench.finish_all()
    await check_idle(bench)


async def test_a_request_that_is_aborted_by_another_is_400(api: StartApi) -> None:
    """Not 503, which the client would try again."""
    bench = await api(is_automatic=False)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, answers, bench, "a")
        await trio.testing.wait_all_tasks_blocked()
        await bench.post_raw("/abort_request", b'{"abort_all": true}')
    check_error(answers[0], 400, "The request was aborted.", code="invalid_value")
    bench.finish_all()
    await check_idle(bench)


async def test_a_text_that_fails_is_500_without_its_reason(api: StartApi) -> None:
    bench = await api(poison=ord("!"))
    answer = await post(bench, input=["fine", "bad!"])
    assert answer.status == 500
    assert "finite" not in answer.body.decode()
    assert answer.json()["error"]["code"] == "internal_error"
    await check_idle(bench)


@pytest.mark.row("S-E-006")
async def test_a_full_queue_is_503_and_counted(api: StartApi) -> None:
    bench = await api(is_automatic=False, max_running_requests=1, max_queued_requests=0)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, answers, bench, "a")
        await trio.testing.wait_all_tasks_blocked()
        answer = await post(bench, input="b")
        check_error(answer, 503, "The request queue is full.", code="overloaded")
        bench.finish_all()
    check_vectors(vectors_of(answers[0]), b"a")
    assert await bench.metric("rejected_requests_total") == 1


@pytest.mark.row("S-N-018", "S-N-019")
async def test_loads_and_metrics_count_each_model(api: StartApi) -> None:
    bench = await api(is_automatic=False, max_running_requests=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: post(bench, input=["abc", "de", "f"]))
        await trio.testing.wait_all_tasks_blocked()
        (load,) = (await bench.get("/v1/loads")).json()["loads"]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (1, 2)
        text = (await bench.get("/metrics")).body.decode()
        assert f'trioserve_num_running_reqs{{model_name="{EMBEDDER}"}} 1.0' in text
        assert f'trioserve_num_queue_reqs{{model_name="{EMBEDDER}"}} 2.0' in text
        assert f'trioserve_num_running_reqs{{model_name="{CHAT_MODEL}"}} 0.0' in text
        bench.finish_all()
    text = (await bench.get("/metrics")).body.decode()
    assert f'trioserve_prompt_tokens_total{{model_name="{EMBEDDER}"}} 6.0' in text
    assert f'trioserve_prompt_tokens_total{{model_name="{CHAT_MODEL}"}} 0.0' in text
    assert f'trioserve_steps_total{{model_name="{EMBEDDER}"}} 3.0' in text
    for name in ("e2e_request_latency_seconds", "queue_time_seconds"):
        assert f'trioserve_{name}_count{{model_name="{EMBEDDER}"}} 1.0' in text
    # One family each, whatever the number of models.
    assert text.count("# TYPE trioserve_prompt_tokens_total ") == 1
    assert text.count("# TYPE trioserve_num_running_reqs ") == 1


async def test_an_embedding_model_alone_has_a_load_without_a_pool(api: StartApi) -> None:
    bench = await api(is_alone=True)
    check_vectors(vectors_of(await post(bench, input="abc")), b"abc")
    (load,) = (await bench.get("/v1/loads")).json()["loads"]
    assert (load["max_total_num_tokens"], load["token_usage"]) == (0, 0.0)
    text = (await bench.get("/metrics")).body.decode()
    assert f'trioserve_prompt_tokens_total{{model_name="{EMBEDDER}"}} 3.0' in text
    assert "trioserve_pages" not in text


async def test_a_request_is_one_line_of_the_log_without_its_texts(
    api: StartApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trioserve")
    bench = await api()
    caplog.clear()
    await post(bench, input=["my diary", "b"])
    await post(bench, input="x" * 100)
    lines = [record.msg for record in caplog.records]
    assert [line["event"] for line in lines] == ["request", "request refused"]
    assert lines[0] == {
        **lines[0],
        "endpoint": EMBEDDINGS,
        "outcome": "ok",
        "prompt_tokens": 9,
        "inputs": 2,
    }
    assert "diary" not in str(lines)
