"""`trioserve serve`: the composition root, and how it comes to an end."""

import signal
from collections.abc import AsyncIterator
from functools import partial

import hypercorn.trio
import structlog
import trio
from hypercorn.config import Config, Sockets

from trioserve.api.containment import contain_connections
from trioserve.config import ServerConfig
from trioserve.hosting import Server, report_end
from trioserve.listen import open_listeners
from trioserve.logs import configure_logging

log = structlog.get_logger("trioserve")

BACKLOG = 1024
SIGNALS = (signal.SIGTERM, signal.SIGINT)
HYPERCORN_GRACE_S = 1.0
"""After our own drain nothing is left but to close idle connections."""


class _OwnSockets(Config):
    """Hypercorn's settings, with the sockets that we opened."""

    def __init__(self, sockets: Sockets, config: ServerConfig) -> None:
        super().__init__()
        self._sockets = sockets
        self.keep_alive_timeout = config.keep_alive_timeout
        self.graceful_timeout = HYPERCORN_GRACE_S
        self.include_server_header = False
        self.backlog = BACKLOG
        self.loglevel = "WARNING"

    def create_sockets(self) -> Sockets:
        return self._sockets


def serve_forever(config: ServerConfig) -> int:
    """Serve until SIGTERM, SIGINT or a failure; returns the exit code.

    Raises ConfigError if the address cannot be used; a model that cannot is reported here.
    """
    configure_logging(config.log_level)
    contain_connections()
    sockets = open_listeners(
        config.host, config.port, backlog=BACKLOG, user_timeout_s=config.stall_timeout
    )
    try:
        trio.run(_serve, config, sockets)
    except (Exception, BaseExceptionGroup) as error:
        return report_end(error)
    return 0


async def _serve(config: ServerConfig, sockets: Sockets) -> None:
    server = Server(config)
    # What the receiver puts back when it closes: from then on the process ends by itself, and one
    # signal more must not make a failure of it.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    with trio.open_signal_receiver(*SIGNALS) as signals:
        # The nesting is the design: the engine encloses the HTTP server, which encloses each
        # connection and request.
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            nursery.start_soon(server.announce, partial(_url, sockets))
            await hypercorn.trio.serve(
                server.app,
                _OwnSockets(sockets, config),
                shutdown_trigger=partial(_drained, server, signals, nursery),
                mode="asgi",
            )
            nursery.cancel_scope.cancel()


async def _drained(server: Server, signals: AsyncIterator[int], everything: trio.Nursery) -> None:
    """Hypercorn's shutdown trigger: returns once the first signal's drain is over.

    Until then Hypercorn goes on accepting, so new requests get their 503 instead of a refusal.
    """
    await anext(signals)
    timeout_s = server.config.drain_timeout
    log.info("draining; a second signal exits now", at_most_s=timeout_s)
    # Not in a nursery of the drain: Hypercorn has a second of its own after it.
    everything.start_soon(_cancel_on_signal, signals, everything.cancel_scope)
    await server.engine.drain(timeout_s)
    # What is written to a reader that takes nothing would outlast every limit.
    server.app.open_requests.end_pending_writes()


async def _cancel_on_signal(signals: AsyncIterator[int], everything: trio.CancelScope) -> None:
    await anext(signals)
    everything.cancel()


def _url(sockets: Sockets) -> str:
    host, port = sockets.insecure_sockets[0].getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
