"""Hypercorn's connections with each failure kept inside its own connection.

`contain_connections()` puts subclasses in the place of five Hypercorn classes, by the names under
which Hypercorn looks them up. Call it when the app is imported or at the latest when its lifespan
starts: connections made from then on are contained, under all three ways to start.

What is put right:

- an exception that escapes the task of one connection (an HTTP/2 path that is not ASCII, a bad
  `HTTP2-Settings` header, data for a stream that is gone, …) ends that connection and one log line.
  Hypercorn's Trio worker runs connections in one nursery, where it would end the server;
- a reader that pipelined bytes have parked is let go when the connection closes; Hypercorn would
  keep its task until the process ends;
- the rest of a request body whose HTTP/2 stream was answered early (413, 400) is dropped, instead
  of a KeyError that takes the connection's other streams down;
- an HTTP/2 response waits when its reader does. Hypercorn's buffer lets every write through as soon
  as it is looked at, even when the window is shut, so it grows without a bound and a reader that
  stopped is never noticed;
- each connection's state names its socket, so that nobody has to look for it.

Rejected: a front server of our own, which would work for `trioserve serve` alone; and catching in
the ASGI app, which is a sibling of the task that fails and is cancelled with it.
"""

from collections.abc import Iterator
from contextlib import suppress
from logging import getLogger

import h2.events
import h2.exceptions
import h11
import hypercorn.asyncio.run
import hypercorn.protocol
import hypercorn.protocol.h2
import hypercorn.trio.run
from hypercorn.asyncio.tcp_server import TCPServer as AsyncioServer
from hypercorn.protocol.h2 import (
    BUFFER_HIGH_WATER,
    BUFFER_LOW_WATER,
    BufferCompleteError,
    H2Protocol,
    StreamBuffer,
)
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer as TrioServer
from hypercorn.typing import LifespanState

from trioserve.api.connection import SOCKET_KEY
from trioserve.listen import ConnectionSocket

logger = getLogger(__name__)


def contain_connections() -> None:
    """Puts the classes of this file in Hypercorn's place; more than once does no harm."""
    for module, name, contained in (
        (hypercorn.trio.run, "TCPServer", ContainedTrioServer),
        (hypercorn.asyncio.run, "TCPServer", ContainedAsyncioServer),
        (hypercorn.protocol, "H11Protocol", ContainedH11Protocol),
        (hypercorn.protocol, "H2Protocol", ContainedH2Protocol),
        (hypercorn.protocol.h2, "StreamBuffer", BoundedStreamBuffer),
    ):
        assert hasattr(module, name), f"{module.__name__} looks {name} up no more"
        setattr(module, name, contained)


class ContainedTrioServer(TrioServer):
    """One connection under Hypercorn's Trio worker."""

    async def run(self) -> None:
        transport = getattr(self.stream, "transport_stream", self.stream)
        self.state = _with_socket(self.state, getattr(transport, "socket", None))
        try:
            await super().run()
        except* Exception as group:  # a cancellation goes on
            _log(group)


class ContainedAsyncioServer(AsyncioServer):
    """One connection under Hypercorn's asyncio worker.

    asyncio keeps the exception to this task by itself, but Hypercorn gathers these tasks when it
    shuts down, and one failure there would skip the lifespan's end.
    """

    async def run(self) -> None:
        self.state = _with_socket(self.state, self.writer.get_extra_info("socket"))
        try:
            await super().run()
        except* Exception as group:
            _log(group)


class ContainedH11Protocol(H11Protocol):
    """HTTP/1.1 whose reader never stays parked on a closed connection."""

    async def _maybe_recycle(self) -> None:
        if isinstance(self.connection, h11.Connection) and not self._can_recycle(self.connection):
            # The reader, woken below, would find the pipelined bytes still there and park again.
            # An empty connection sends it on to the socket, which is closed by then.
            self.connection = h11.Connection(h11.SERVER)
        await super()._maybe_recycle()

    def _can_recycle(self, connection: h11.Connection) -> bool:
        return (
            not self.context.terminated.is_set()
            and connection.our_state is h11.DONE
            and connection.their_state is h11.DONE
        )


class ContainedH2Protocol(H2Protocol):
    """HTTP/2 that drops data for streams which it has answered already."""

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                with suppress(h2.exceptions.ProtocolError):
                    # The connection's window is shared: bytes not acknowledged would narrow it.
                    self.connection.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                await self._flush()
            else:
                await super()._handle_events([event])


class BoundedStreamBuffer(StreamBuffer):
    """What an HTTP/2 stream has still to send; a write waits while there is too much of it."""

    async def push(self, data: bytes) -> None:
        if self._complete:
            raise BufferCompleteError
        self.buffer.extend(data)
        await self._is_empty.clear()
        if len(self.buffer) >= BUFFER_HIGH_WATER:
            # Cleared before and not after the wait: a pop that came earlier says nothing.
            await self._paused.clear()
            await self._paused.wait()

    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


def _with_socket(state: LifespanState, sock: object) -> LifespanState:
    fileno = getattr(sock, "fileno", None)
    if fileno is None:
        return state  # a memory stream
    with suppress(OSError):
        return LifespanState({**state, SOCKET_KEY: ConnectionSocket.of(fileno())})
    return state


def _log(group: BaseExceptionGroup[Exception]) -> None:
    for error in _leaves(group):
        logger.warning("connection closed after an error: %r", error)
    logger.debug("where it happened", exc_info=group)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
