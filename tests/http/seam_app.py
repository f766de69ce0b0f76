"""A small app with nothing but the seams: the three ways to start it serve it in the seam tests.

`hypercorn -k trio seam_app:app`, `hypercorn seam_app:app`, and `python seam_app.py PORT`, which is
started the way `trioserve serve` is. Requests that name an `id` are counted under it, as an engine
would count them: opened on the request's stack, aborted by `on_end`, ended when the stack unwinds.
"""

import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import hypercorn.trio
import trio
from attrs import asdict, define
from hypercorn.config import Config, Sockets
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, LifespanScope, Scope
from quart import Response, request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGILifespan

from trioserve.api.connection import ScopedApp, open_request, request_stack
from trioserve.api.containment import contain_connections
from trioserve.api.end_process import end_process
from trioserve.api.open_requests import watch_connections
from trioserve.asyncio_host import AsyncioHost
from trioserve.engine.abort_reason import AbortReason
from trioserve.listen import open_listeners, set_user_timeout_on_listeners

STALL_TIMEOUT_S = float(os.environ.get("SEAM_STALL_TIMEOUT_S", "30"))
# Longer than the watch's limit, so that a test sees which of the two ended a connection.
USER_TIMEOUT_S = 60.0


@define
class Count:
    opened: int = 0
    aborted: int = 0
    ended: int = 0

    def abort(self, _: AbortReason) -> None:
        self.aborted += 1

    def end(self) -> None:
        self.ended += 1


class SeamApp(ScopedApp):
    """Counts requests; `fail` is set to make the lifespan die."""

    def __init__(self) -> None:
        super().__init__("seam_app")
        self.counts: defaultdict[str, Count] = defaultdict(Count)
        self.fail = trio.Event()

    def count_request(self) -> None:
        count = self.counts[request.args.get("id", "")]
        count.opened += 1
        open_request().on_end = count.abort
        request_stack().callback(count.end)


class SeamLifespan(TrioASGILifespan):
    """Opens an "engine" around the inherited call, as the real one does."""

    def __init__(self, app: QuartTrio, scope: LifespanScope) -> None:
        super().__init__(app, scope)
        assert isinstance(app, SeamApp)
        self._seam_app = app

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        set_user_timeout_on_listeners(USER_TIMEOUT_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_engine, self._seam_app)
            await super().__call__(receive, send)
            nursery.cancel_scope.cancel()


async def run_engine(app: SeamApp) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(watch_connections, app.open_requests, stall_timeout_s=STALL_TIMEOUT_S)
        )
        await app.fail.wait()
        raise RuntimeError("the engine died")


def make_app() -> SeamApp:
    app = SeamApp()
    app.asgi_lifespan_class = SeamLifespan

    @app.get("/now")
    async def now() -> str:
        app.count_request()
        return "now"

    @app.post("/length")
    async def length() -> str:
        app.count_request()
        return str(len(await request.get_data()))

    @app.post("/refuse")
    async def refuse() -> tuple[str, int]:
        return "refused before the body was read", 413

    @app.get("/silent")
    async def silent() -> str:
        app.count_request()
        await trio.sleep_forever()
        raise AssertionError

    @app.get("/stream")
    async def stream() -> Response:
        """`events` events, `period` seconds apart, then silence if `then=silence`."""
        app.count_request()
        num_events = int(request.args.get("events", "1000000000"))
        period_s = float(request.args.get("period", "0.01"))
        is_silent_then = request.args.get("then") == "silence"

        async def body() -> AsyncIterator[bytes]:
            for number in range(num_events):
                await trio.sleep(period_s)
                yield b"data: %d\n\n" % number
            if is_silent_then:
                await trio.sleep_forever()

        return Response(body(), content_type="text/event-stream")

    @app.get("/flood")
    async def flood() -> Response:
        app.count_request()

        async def body() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 65536

        return Response(body())

    @app.get("/break")
    async def break_off() -> Response:
        app.count_request()

        async def body() -> AsyncIterator[bytes]:
            yield b"data: 0\n\n"
            raise RuntimeError("the body broke off")

        return Response(body())

    @app.get("/count")
    async def count() -> dict[str, Any]:
        return asdict(app.counts[request.args["id"]])

    @app.get("/open")
    async def num_open() -> str:
        """Requests that are open besides this one."""
        return str(len(app.open_requests) - 1)

    @app.post("/exit")
    async def exit_now() -> str:
        end_process(3)

    @app.post("/die")
    async def die() -> str:
        app.fail.set()
        return "dying"

    return app


class SeamCallable:
    """What the three ways to start load: the app itself in Trio, its host elsewhere."""

    def __init__(self) -> None:
        self.trio_app = make_app()
        self._host = AsyncioHost(self.trio_app, end_process=self._end_process)

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        app = self.trio_app if trio.lowlevel.in_trio_task() else self._host
        await app(scope, receive, send)

    @staticmethod
    def _end_process(error: BaseException) -> None:
        logging.error("ended by %r", error)
        end_process(3)


class _ListeningConfig(Config):
    """Hands our own sockets to `hypercorn.trio.serve`."""

    sockets: Sockets

    def create_sockets(self) -> Sockets:
        return self.sockets


async def serve(port: int) -> None:
    config = _ListeningConfig()
    config.keep_alive_timeout = float(os.environ.get("SEAM_KEEP_ALIVE_S", "5"))
    config.graceful_timeout = 1.0
    config.sockets = open_listeners("127.0.0.1", port, backlog=100, user_timeout_s=USER_TIMEOUT_S)

    async def wait_for_signal() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                return

    callable_ = SeamCallable()
    callable_.trio_app.asgi_lifespan_class = TrioASGILifespan
    async with trio.open_nursery() as engine:
        engine.start_soon(run_engine, callable_.trio_app)
        await hypercorn.trio.serve(callable_, config, shutdown_trigger=wait_for_signal)
        engine.cancel_scope.cancel()


contain_connections()
logging.basicConfig(level=logging.INFO)
app = SeamCallable()

if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]))
