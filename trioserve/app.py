"""The ASGI app that a stock Hypercorn loads: `hypercorn -k trio trioserve.app`.

Settings come from `TRIOSERVE_*` variables (`TRIOSERVE_CONFIG` names a file); the address, the
keep-alive and the graceful time are Hypercorn's own flags. `hypercorn trioserve.app` works too: its
worker runs asyncio, so the same app runs in a guest Trio loop (`asyncio_host`).

Hypercorn swallows a lifespan that dies after start-up and would go on serving without an engine,
so this is the one place that ends the process by hand.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
from functools import partial
from typing import Any, NoReturn, cast

import trio
from hypercorn.typing import (
    ASGIFramework,
    ASGIReceiveCallable,
    ASGISendCallable,
    LifespanScope,
    Scope,
)
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGILifespan

from trioserve.api.containment import contain_connections
from trioserve.api.end_process import end_process
from trioserve.asyncio_host import AsyncioHost
from trioserve.cli import load_config
from trioserve.hosting import Server, report_end
from trioserve.listen import listening_url, set_user_timeout_on_listeners
from trioserve.logs import configure_logging
from trioserve.one_worker import SecondWorker, require_one_worker

contain_connections()


def report_and_end(error: BaseException) -> NoReturn:
    """Say why, and end the process, whatever Hypercorn would rather do."""
    code = report_end(error)
    if isinstance(error, SecondWorker):
        # The parent has to end the first worker, which it does once this one has exited.
        logging.shutdown()
        os._exit(code)
    end_process(code)


def make_server() -> Server:
    """The server of this process. Ends the process if a setting cannot be used."""
    try:
        config = load_config()
        configure_logging(config.log_level)
        require_one_worker()
        return Server(config)
    except Exception as error:
        report_and_end(error)


class ServerLifespan(TrioASGILifespan):
    """Runs the server's engine around the inherited lifespan call.

    Rejected: `while_serving`, which yields inside a nursery; `app.nursery`, which gets a deadline
    at shutdown; `add_background_task`, which swallows exceptions.
    """

    def __init__(self, server: Server, app: QuartTrio, scope: LifespanScope) -> None:
        super().__init__(app, scope)
        self._server = server

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        # Sockets accepted from here on inherit it.
        set_user_timeout_on_listeners(self._server.config.stall_timeout)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._server.run)
                nursery.start_soon(self._server.announce, listening_url)
                nursery.start_soon(_forward_sigterm)
                await super().__call__(receive, send)
                nursery.cancel_scope.cancel()
        except* Exception as group:
            report_and_end(group)


async def _forward_sigterm() -> None:
    """A Hypercorn worker leaves SIGTERM to kill it: pass it on to what ends Hypercorn properly."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return  # the asyncio worker has its own handler when it runs without a parent
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            parent = multiprocessing.parent_process()
            if parent is not None and parent.pid is not None:
                os.kill(parent.pid, signal.SIGTERM)
            else:
                # Not raised from here, where the interrupt would land in this very task; Trio hands
                # what comes from its own loop to the main task, where Hypercorn expects it.
                trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, signal.SIGINT)


class App:
    """The ASGI callable. The server is made when the lifespan starts, not when this is imported."""

    def __init__(self) -> None:
        self._inner: ASGIFramework | None = None

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable, *_: Any
    ) -> None:
        if self._inner is None:
            self._inner = _inner_app(make_server())
        await self._inner(scope, receive, send)


def _inner_app(server: Server) -> ASGIFramework:
    server.app.asgi_lifespan_class = cast("Any", partial(ServerLifespan, server))
    inner = cast("ASGIFramework", server.app)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return inner
    return cast("ASGIFramework", AsyncioHost(inner, end_process=report_and_end))


app = App()
