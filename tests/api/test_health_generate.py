"""`/health_generate`: whether tokens flow, without a key and without a trace."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import COMPLETIONS, JSON, ApiBench, StartApi

PATH = "/health_generate"
LATE = "No token was generated within 20 s."


async def collect(answers: list[Answer], bench: ApiBench) -> None:
    answers.append(await bench.get(PATH))


@pytest.mark.row("S-N-016")
async def test_an_idle_server_generates_one_greedy_token(start: StartApi) -> None:
    bench = await start("x")
    answer = await bench.get(PATH)
    assert (answer.status, answer.json()) == (200, {"status": "ok"})
    (row,) = [row for plan in bench.runner.plans for row in plan.rows]
    assert row.sampling.temperature == 0.0
    assert row.sequence.max_tokens == 1
    bench.check_idle()
    assert await bench.metric("generation_tokens_total") == 1


async def test_it_answers_as_soon_as_the_token_is_there(
    start: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start("x", is_automatic=False)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, answers, bench)
        await bench.device.wait_submitted()
        await trio.sleep(10)
        assert not answers
        bench.finish_all()
        await trio.sleep(0.2)
        assert [answer.status for answer in answers] == [200]
    bench.check_idle()


@pytest.mark.row("S-N-016")
async def test_a_token_of_somebody_else_will_do(
    start: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    """A full batch would let the probe wait, and a full queue would refuse it."""
    bench = await start("x" * 50, is_automatic=False, max_running_requests=1, max_queued_requests=0)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.post(COMPLETIONS, max_tokens=20))
        await bench.finish_step()
        nursery.start_soon(collect, answers, bench)
        await trio.sleep(5)
        assert not answers
        await bench.finish_step()
        await trio.sleep(0.2)
        assert [answer.status for answer in answers] == [200]
        bench.finish_all()
    assert len(bench.prompts()) == 1, "there was a probe"
    assert await bench.metric("rejected_requests_total") == 0


@pytest.mark.row("S-N-016")
@pytest.mark.parametrize("is_busy", [False, True])
async def test_it_is_503_after_20_s_without_a_token(
    start: StartApi, autojump_clock: trio.testing.MockClock, is_busy: bool
) -> None:
    bench = await start("x", is_automatic=False, max_running_requests=1, max_queued_requests=0)
    async with trio.open_nursery() as nursery:
        if is_busy:
            nursery.start_soon(bench.post, COMPLETIONS)
            await bench.device.wait_submitted()
        called_at = trio.current_time()
        answer = await bench.get(PATH)
        assert trio.current_time() == pytest.approx(called_at + 20)
        check_error(answer, 503, LATE, code="overloaded")
        bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_client_that_leaves_takes_its_probe_along(start: StartApi) -> None:
    bench = await start("x", is_automatic=False)
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            async with bench.wire.connect() as client:
                await client.get(PATH)

        nursery.start_soon(ask)
        await bench.device.wait_submitted()
        assert len(bench.engine.batch.streams) == 1
        nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert not bench.engine.batch.streams
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_probe_that_is_aborted_with_all_others_is_made_again(
    start: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start("x", is_automatic=False)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, answers, bench)
        await bench.device.wait_submitted()
        await bench.ask("POST", "/abort_request", data=b'{"abort_all": true}', headers=JSON)
        bench.finish_all()
        await trio.sleep(1)
    assert [answer.status for answer in answers] == [200]
    bench.check_idle()


async def test_probes_at_once_are_apart(start: StartApi) -> None:
    bench = await start("x", is_automatic=False)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(collect, answers, bench)
        await bench.device.wait_submitted()
        bench.finish_all()
    assert [answer.status for answer in answers] == [200] * 5
    bench.check_idle()


@pytest.mark.parametrize(
    ("settings", "message", "code"),
    [
        ({"is_loaded": False}, "The model is loading.", "model_loading"),
        ({}, "The server is shutting down.", "shutting_down"),
    ],
)
async def test_a_server_that_does_not_serve_says_so_at_once(
    start: StartApi, settings: dict[str, Any], message: str, code: str
) -> None:
    bench = await start("x", **settings)
    if not settings:
        await bench.engine.drain(1)
    check_error(await bench.get(PATH), 503, message, code=code)
    assert not bench.runner.plans
