"""A request is cancelled at each of its checkpoints in turn; nothing may leak, nobody else may see.

The whole path runs: Hypercorn's connection, our connection class, the handler, the stream and the
body. An instrument counts the steps of the request's tasks and cancels its scope before the k-th;
k grows until the request gets through uncancelled. That includes the step between the handler's
return and the first byte of the body, where Quart has sent headers and the generator has not begun.
"""

from contextvars import ContextVar
from typing import Any

import h11
import pytest
import trio
import trio.testing
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

from tests.engine.kit import Bench, StartBench, expected, read_all, request
from trioserve.api.app import create_app
from trioserve.testing.memory_server import MemoryServer

NUM_TOKENS = 6
LEAST_CHECKPOINTS = 20

_is_request: ContextVar[bool] = ContextVar("_is_request", default=False)


class CancelBeforeStep(trio.abc.Instrument):
    """Cancels `scope` before the `at`-th step of any task that belongs to the request."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.num_steps = 0
        self.scope: trio.CancelScope | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.scope is not None and task.context.get(_is_request):
            self.num_steps += 1
            if self.num_steps == self.at:
                self.scope.cancel()

    @property
    def has_cancelled(self) -> bool:
        return self.num_steps >= self.at


class CancellableApp:
    """The app, with each request in a scope that the instrument can cancel."""

    def __init__(self, app: Any, instrument: CancelBeforeStep) -> None:
        self._app = app
        self._instrument = instrument

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        with trio.CancelScope() as cancel_scope:
            _is_request.set(True)
            self._instrument.scope = cancel_scope
            await self._app(scope, receive, send)


async def run_and_cancel(
    bench: Bench, nursery: trio.Nursery, path: str, body: dict[str, Any], at: int
) -> bool:
    """One request, cancelled before its `at`-th step; whether there was such a step."""
    instrument = CancelBeforeStep(at)
    app = create_app_once(bench)
    server = MemoryServer(CancellableApp(app, instrument), nursery)  # type: ignore[arg-type]
    trio.lowlevel.add_instrument(instrument)
    try:
        async with server.connect() as client:
            try:
                await client.post_json(path, body)
            except (h11.RemoteProtocolError, trio.BrokenResourceError, AssertionError):
                assert instrument.has_cancelled, "the connection broke without a cancellation"
    finally:
        trio.lowlevel.remove_instrument(instrument)
    return instrument.has_cancelled


_apps: dict[int, Any] = {}


def create_app_once(bench: Bench) -> Any:
    """An app registers its counters with the engine, so there is one for each."""
    if id(bench) not in _apps:
        _apps.clear()
        _apps[id(bench)] = create_app(bench.engine)
    return _apps[id(bench)]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("is_streamed", [True, False], ids=["stream", "whole"])
async def test_a_cancellation_at_any_checkpoint_leaks_nothing(
    start: StartBench,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    path: str,
    is_streamed: bool,
) -> None:
    bench = await start(num_pages=32)
    body = {
        "model": bench.engine.config.served_names[0],
        "prompt": "a prompt of more than one chunk",
        "max_tokens": NUM_TOKENS,
        "n": 1 if path.endswith("chat/completions") else 2,
        "stream": is_streamed,
    }
    num_cancelled = 0
    while True:
        survivor: list[str] = []

        async def survive(texts: list[str]) -> None:
            with bench.engine.open_stream(request(b"survivor", 20)) as stream:
                texts.extend(await read_all(stream))

        async with trio.open_nursery() as pair:
            pair.start_soon(survive, survivor)
            was_cancelled = await run_and_cancel(bench, nursery, path, body, num_cancelled + 1)
        assert survivor == [expected(b"survivor", 20)], f"checkpoint {num_cancelled + 1}"
        await trio.testing.wait_all_tasks_blocked()
        bench.check_idle()
        assert not list(create_app_once(bench).open_requests)
        if not was_cancelled:
            break
        num_cancelled += 1
    assert num_cancelled >= LEAST_CHECKPOINTS, f"only {num_cancelled} checkpoints were hit"


async def test_a_cancellation_between_handler_and_body_frees_the_pages(
    start: StartBench, nursery: trio.Nursery
) -> None:
    """Named on its own because it is where a response generator's `finally` would never run."""
    bench = await start(is_automatic=False)
    scopes: list[trio.CancelScope] = []
    inner = create_app(bench.engine)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def send_then_cancel(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert bench.engine.batch.pool.statistics().leased > 0
                scopes[0].cancel()
            await send(message)

        with trio.CancelScope() as cancel_scope:
            scopes.append(cancel_scope)
            await inner(scope, receive, send_then_cancel)

    body = {"model": bench.engine.config.served_names[0], "prompt": "abc", "stream": True}
    async with MemoryServer(app, nursery).connect() as client:  # type: ignore[arg-type]
        with pytest.raises(h11.RemoteProtocolError):
            await client.post_json("/v1/completions", body)
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
