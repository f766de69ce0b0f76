"""503 and the ends that are nobody's fault: loading, draining, time, and an engine that fails."""

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, MODEL, ApiBench, StartApi
from trioserve.api.app import create_app
from trioserve.config import ServerConfig
from trioserve.engine.engine import DEATH_NOTICE_S, Engine
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_model import FakeRunner, fake_model
from trioserve.testing.memory_server import MemoryServer

LOADING = "The model is loading."
STOPPING = "The server is shutting down."
DEAD = "The engine has failed; the server is exiting."
FAILED = "Internal server error (request "


@pytest.mark.row("S-M-004", "S-E-006")
@pytest.mark.parametrize("stream", [False, True])
async def test_while_the_model_loads_everything_about_it_is_503(
    start: StartApi, stream: bool
) -> None:
    bench = await start("ok", is_loaded=False)
    answers = [
        *[await bench.post(path, stream=stream) for path in ENDPOINTS],
        *[
            await bench.get(path)
            for path in (
                "/health",
                "/v1/models",
                "/v1/models/org/fake",
                "/get_model_info",
                "/server_info",
                "/get_load",
                "/v1/loads",
            )
        ],
    ]
    for answer in answers:
        check_error(answer, 503, LOADING, code="model_loading")
        assert answer.headers["retry-after"] == "5"
    assert (await bench.get("/metrics")).status == 200
    assert (await bench.get("/nothing")).status == 404


async def collect(answers: list[Answer], bench: ApiBench, path: str, **fields: object) -> None:
    answers.append(await bench.post(path, **fields))


@pytest.mark.row("S-N-023", "S-M-004")
@pytest.mark.case(19, 20)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_drain_refuses_new_work_and_finishes_what_is_open(
    start: StartApi, path: str, stream: bool
) -> None:
    """Cases 19 and 20."""
    bench = await start("finished", is_automatic=False)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: collect(answers, bench, path, stream=stream))
        await bench.device.wait_submitted()
        nursery.start_soon(bench.engine.drain, 60)
        await trio.testing.wait_all_tasks_blocked()
        for refused in (await bench.post(path, stream=stream), await bench.get("/health")):
            check_error(refused, 503, STOPPING, code="shutting_down")
            assert refused.headers["retry-after"] == "1"
        assert (await bench.get("/v1/models")).status == 200
        assert (await bench.get("/metrics")).status == 200
        bench.finish_all()
    assert answers[0].texts() == ["finished"]
    bench.check_idle()


@pytest.mark.row("S-N-023", "S-C-055", "S-H-040")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_drain_cuts_ends_with_abort_and_its_text(
    start: StartApi, path: str, stream: bool, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start("cut off", is_automatic=False)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: collect(answers, bench, path, stream=stream, n=2))
        for _ in range(5):
            await bench.finish_step()
        await bench.engine.drain(2)
    # The second sample of a prompt that fills pages begins once the first one has computed them.
    check_aborted(answers[0], stream, ["cut o", "cut o" if path == COMPLETIONS else "cut"])
    bench.finish_all()


def check_aborted(answer: Answer, stream: bool, texts: list[str]) -> None:
    assert answer.status == 200
    assert answer.texts() == texts
    chunks = answer.events() if stream else [answer.json()]
    ends = [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"] is not None]
    assert [end["finish_reason"] for end in ends] == ["abort"] * len(texts)
    assert [end["matched_stop"] for end in ends] == [None] * len(texts)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_steps", [0, 3])
async def test_a_request_timeout_ends_the_answer_with_abort(
    start: StartApi,
    path: str,
    stream: bool,
    num_steps: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = await start("too slow", is_automatic=False, request_timeout=5)
    answers: list[Answer] = []
    started_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: collect(answers, bench, path, stream=stream))
        for _ in range(num_steps):
            await bench.finish_step()
    assert trio.current_time() == pytest.approx(started_at + 5)
    check_aborted(answers[0], stream, ["too slow"[:num_steps]])
    assert await bench.metric("aborted_requests_total", reason="timeout") == 1
    bench.finish_all()


@pytest.mark.row("S-E-006")
@pytest.mark.case(116)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_queue_timeout_is_503_and_leaves_the_running_request_alone(
    start: StartApi, path: str, stream: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Case 116."""
    bench = await start("fine", is_automatic=False, max_running_requests=1, queue_timeout=2)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: collect(answers, bench, path, stream=stream))
        await bench.device.wait_submitted()
        arrived_at = trio.current_time()
        refused = await bench.post(path, stream=stream)
        assert trio.current_time() == pytest.approx(arrived_at + 2)
        message = "The request waited longer than 2 s for a free slot."
        check_error(refused, 503, message, code="queue_timeout")
        assert refused.headers["retry-after"] == "1"
        assert bench.engine.batch.scheduler.num_waiting == 0
        bench.finish_all()
    assert answers[0].texts() == ["fine"]
    assert await bench.metric("aborted_requests_total", reason="queue_timeout") == 1
    bench.check_idle()


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_queue_timeout_does_not_count_once_a_request_has_started(
    start: StartApi, path: str, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start("fine", is_automatic=False, queue_timeout=2)
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: collect(answers, bench, path))
        await bench.finish_step()
        await trio.sleep(10)
        bench.finish_all()
    assert answers[0].texts() == ["fine"]


@pytest.mark.row("S-E-005")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_request_that_fails_is_500_and_others_go_on(
    start: StartApi, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await start(poison=ord("!"))
    bad = {"prompt": "bad!", "messages": None}
    answer = await bench.post(path, **bad)
    shown = answer.json()["message"]
    check_error(answer, 500, shown, code="internal_error")
    assert shown == f"{FAILED}{answer.headers['x-request-id']})"
    assert "finite" not in answer.body.decode()
    assert "Traceback" not in answer.body.decode()
    assert "not finite" in caplog.text
    assert (await bench.post(path)).status == 200
    bench.check_idle()


@pytest.mark.row("S-N-005")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("n", [1, 3])
async def test_a_failure_inside_a_stream_is_one_error_event_and_done(
    start: StartApi, path: str, n: int
) -> None:
    """No finish chunk follows an error; clients raise from the nested one."""
    bench = await start(poison=ord("!"))
    fields = {"prompt": "bad!", "messages": None, "stream_options": {"include_usage": True}}
    answer = await bench.post(path, stream=True, n=n, **fields)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, error = answer.events()
    assert chunks == []
    message = f"{FAILED}{answer.headers['x-request-id']})"
    kind = "internal_server_error"
    assert error == {
        "object": "error",
        "message": message,
        "type": kind,
        "param": None,
        "code": 500,
        "error": {"message": message, "type": kind, "param": None, "code": "internal_error"},
    }
    assert await bench.metric("requests_total", endpoint=path, status="500") == 1
    assert (await bench.post(path)).status == 200
    bench.check_idle()


@pytest.mark.row("S-M-004")
@pytest.mark.case(112)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_dead_engine_fails_open_requests_and_refuses_new_ones(
    path: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Case 112, and a stream that was cut after its first tokens."""
    device = FakeDevice()
    engine = Engine(
        ServerConfig(model_path=MODEL),
        lambda _config: fake_model(FakeRunner(num_pages=64, page_size=4)),
        device,
    )
    app = create_app(engine)
    answers: list[Answer] = []
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="device lost")):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            await engine.ready.wait()
            bench = ApiBench(app, engine, device, engine.model.runner, MemoryServer(app, nursery))
            async with trio.open_nursery() as requests:
                requests.start_soon(lambda: collect(answers, bench, path))
                await trio.testing.wait_all_tasks_blocked()
                requests.start_soon(lambda: collect(answers, bench, path, stream=True))
                for _ in range(3):
                    await bench.finish_step()
                device.is_automatic = True
                device.finish(RuntimeError("device lost"))
            died_at = trio.current_time()
            whole, streamed = sorted(answers, key=lambda answer: -answer.status)
            check_error(whole, 503, DEAD, code="engine_dead")
            assert whole.headers["retry-after"] == "1"
            *chunks, error = streamed.events()
            assert chunks, "the stream had begun"
            assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
            assert error["error"]["code"] == "engine_dead"
            assert (error["code"], error["type"]) == (503, "service_unavailable_error")
            for refused in (
                await bench.get("/health"),
                await bench.post(COMPLETIONS),
                await bench.post(CHAT, stream=True),
            ):
                check_error(refused, 503, DEAD, code="engine_dead")
            await trio.sleep(DEATH_NOTICE_S / 2)
            assert (await bench.get("/health")).status == 503
            assert trio.current_time() < died_at + DEATH_NOTICE_S
            nursery.start_soon(trio.sleep_forever)
