"""One request is one scope: what RequestConnection promises, on a clock that the test owns."""

from typing import Any, cast

import pytest
import trio
from hypercorn.config import Config
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent, HTTPScope
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.http.traced_app import TracedApp
from trioserve.testing.memory_server import MemoryServer

# On this clock a hang is for ever.
pytestmark = pytest.mark.timeout(30)


def http_scope(path: str = "/") -> HTTPScope:
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"test")],
        "client": None,
        "server": None,
        "extensions": {},
    }
    return cast("HTTPScope", scope)


async def receive_request_then_wait() -> ASGIReceiveEvent:
    """Gives no more than silence: Quart does not wait for a body that nobody reads."""
    await trio.sleep_forever()
    raise AssertionError


async def test_a_response_longer_than_quarts_limit_is_not_cut(autojump_clock: MockClock) -> None:
    app = TracedApp(num_events=75)
    async with trio.open_nursery() as nursery:
        client = MemoryServer(app, nursery).connect()
        began_at = trio.current_time()
        response = await client.get("/", headers=[("Connection", "close")])
        assert response.body == b"data: x\n\n" * 75
        assert trio.current_time() - began_at > 70
        assert await client.read_until_closed() == b""
    assert app.trace == ["opened", "body", "ended"]


async def test_a_silent_handler_longer_than_quarts_limit_is_not_cut(
    autojump_clock: MockClock,
) -> None:
    app = TracedApp()

    @app.get("/late")
    async def late() -> str:
        await trio.sleep(90)
        return "late"

    async with trio.open_nursery() as nursery:
        client = MemoryServer(app, nursery).connect()
        response = await client.get("/late", headers=[("Connection", "close")])
        assert response.body == b"late"


async def test_an_idle_connection_is_reaped_at_the_limit(autojump_clock: MockClock) -> None:
    config = Config()
    config.keep_alive_timeout = 75
    async with trio.open_nursery() as nursery:
        client = MemoryServer(TracedApp(num_events=100), nursery, config).connect()
        assert (await client.get("/")).status == 200  # longer than the limit, and not idle
        idle_since = trio.current_time()
        assert await client.read_until_closed() == b""
        assert trio.current_time() - idle_since == pytest.approx(75)


async def test_connection_close_leaves_no_task_behind(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        client = MemoryServer(TracedApp(), nursery).connect()
        await client.get("/now", headers=[("Connection", "close")])
        assert await client.read_until_closed() == b""
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks


async def test_a_handler_that_fails_ends_its_stack_and_answers_500(
    autojump_clock: MockClock,
) -> None:
    app = TracedApp()
    async with trio.open_nursery() as nursery:
        client = MemoryServer(app, nursery).connect()
        response = await client.get("/broken", headers=[("Connection", "close")])
        assert response.status == 500
    assert app.trace == ["opened", "ended"]
    assert len(app.open_requests) == 0


async def test_closing_ends_the_request_and_its_connection(autojump_clock: MockClock) -> None:
    app = TracedApp()
    async with trio.open_nursery() as nursery:
        client = MemoryServer(app, nursery).connect()
        await client.send("GET", "/silent")
        await wait_all_tasks_blocked()
        assert app.trace == ["opened"]
        client.close()
        await wait_all_tasks_blocked()
        assert app.trace == ["opened", "ended"], "noticed without a write and without a delay"
        assert not nursery.child_tasks


async def test_a_reader_parked_by_pipelined_bytes_is_let_go_with_its_connection(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        server = MemoryServer(TracedApp(num_events=1), nursery)
        client = server.connect()
        await client.send("GET", "/", then=b"GET /now HTTP/1.1\r\nHost: test\r\n\r\n")
        await wait_all_tasks_blocked()
        await server.context.terminated.set()  # a server that stops closes after each response
        assert (await client.read_response()).status == 200
        assert await client.read_until_closed() == b""
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks


async def test_a_disconnect_between_the_handler_and_the_first_byte_ends_the_stack() -> None:
    """Quart sends the headers before it enters the body: no `finally` of the body ever runs."""
    app = TracedApp()
    is_left = trio.Event()

    async def receive() -> ASGIReceiveEvent:
        await is_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: ASGISendEvent) -> None:
        assert message["type"] == "http.response.start"
        is_left.set()
        await trio.sleep_forever()

    await app(http_scope(), receive, send)
    assert app.trace == ["opened", "ended"]
    assert len(app.open_requests) == 0


class _CancelAtStep(trio.abc.Instrument):
    """Cancels `scope` at the n-th time that any task is about to run."""

    def __init__(self, scope: trio.CancelScope, at: int) -> None:
        self.scope = scope
        self.num_left = at

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            self.scope.cancel()


async def _run_cancelled_at(step: int) -> tuple[TracedApp, bool]:
    """The app after one request that was cancelled at that step, and whether it was."""
    app = TracedApp()

    async def send(message: ASGISendEvent) -> None:
        await trio.lowlevel.checkpoint()

    with trio.CancelScope() as scope:
        instrument = _CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            await app(http_scope(), receive_request_then_wait, send)
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return app, scope.cancelled_caught


async def test_a_cancellation_at_any_step_ends_what_was_opened(autojump_clock: MockClock) -> None:
    num_cancelled = num_before_body = 0
    for step in range(1, 1000):
        app, is_cancelled = await _run_cancelled_at(step)
        assert app.trace.count("opened") == app.trace.count("ended"), (step, app.trace)
        assert len(app.open_requests) == 0
        if not is_cancelled:
            break
        num_cancelled += 1
        num_before_body += app.trace == ["opened", "ended"]
    else:
        pytest.fail("the request never ended by itself")
    assert app.trace == ["opened", "body", "ended"]
    assert num_cancelled >= 10
    assert num_before_body >= 1
