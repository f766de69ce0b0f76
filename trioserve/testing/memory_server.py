"""Hypercorn's own Trio server over memory streams: the whole HTTP path without a socket.

For tests that own the clock: nothing here waits for the operating system.
"""

import socket
from itertools import count

import trio
from attrs import frozen
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, LifespanState
from trio.testing import lockstep_stream_pair

from trioserve.api.containment import ContainedTrioServer, contain_connections
from trioserve.listen import Address
from trioserve.testing.http import HttpClient


@frozen
class _MemorySocket:
    """Stands for the socket of a server's stream. It has no descriptor, so none is looked for."""

    client: Address
    server: Address = ("memory", 80)
    family: int = socket.AF_INET

    def getpeername(self) -> Address:
        return self.client

    def getsockname(self) -> Address:
        return self.server


class MemoryServer:
    """Serves `app` to clients in the same Trio run; no lifespan is started.

    A write waits until the other side reads it all: the streams hold nothing.
    """

    def __init__(
        self, app: ASGIFramework, nursery: trio.Nursery, config: Config | None = None
    ) -> None:
        contain_connections()
        self.config = config or Config()
        self.config.errorlog = None
        self.context = WorkerContext(None)
        self._app = ASGIWrapper(app)
        self._nursery = nursery
        self._ports = count(1)

    def connect(self) -> HttpClient:
        client_stream, server_stream = lockstep_stream_pair()
        server_stream.socket = _MemorySocket(("client", next(self._ports)))  # type: ignore[attr-defined]
        server = ContainedTrioServer(
            self._app,
            self.config,
            self.context,
            LifespanState({}),
            server_stream,  # type: ignore[arg-type]  # what it uses of a socket stream is there
        )
        self._nursery.start_soon(server.run)
        return HttpClient(client_stream)
