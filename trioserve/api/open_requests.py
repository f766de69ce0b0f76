"""The HTTP requests that are open in this process, and the watch over their connections.

`RequestConnection` adds a record when a request begins and removes it when its last byte is out.
The engine nursery runs one `watch_connections` over them: it ends requests whose reader takes
nothing, and those whose client has left without Hypercorn noticing. One thread, no locks.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from logging import getLogger
from typing import NoReturn

import trio
from attrs import define, field

from trioserve.engine.abort_reason import AbortReason
from trioserve.listen import AddressPair, ConnectionSocket, TcpState, find_connections

logger = getLogger(__name__)

DEFAULT_POLL_S = 0.25


@define(eq=False)
class OpenRequest:
    """One request between its headers and the last byte of its response.

    Handlers reach theirs with `api.connection.open_request()` and put what must end with the
    request on `stack`. The fields below are the connection's and the watch's.
    """

    is_http2: bool
    addresses: AddressPair | None
    """None for a Unix socket."""
    opened_at: float
    socket: ConnectionSocket | None = None
    cancel_scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    """Cancelling it ends the request, wherever it is."""
    stack: ExitStack = field(factory=ExitStack, init=False)
    """Encloses both the handler and the sending of the body; its callbacks must not wait."""
    on_end: Callable[[AbortReason], None] | None = field(default=None, init=False)
    """Called once with the reason when the watch ends this request, before anything else: aborts
    the request's sequences, so that their pages are free although the write may hang for a while.
    Not called when the response is finishing: its sequences have ended, and a client may close as
    soon as it has read the end."""
    is_finishing: bool = field(default=False, init=False)
    """The last body message is on its way: a cancellation now would hit the task that is about to
    close or recycle the connection, and there is nothing left to end."""
    is_ended: bool = field(default=False, init=False)
    """`end` was called."""
    _write_began_at: float | None = field(default=None, init=False)
    _num_bytes_acked: int = field(default=0, init=False)

    @property
    def is_write_pending(self) -> bool:
        return self._write_began_at is not None

    @contextmanager
    def pending_write(self) -> Iterator[None]:
        """Around one `send`: the stall clock runs only inside."""
        self._write_began_at = trio.current_time()
        try:
            yield
        finally:
            self._write_began_at = None

    def stalled_for_s(self, state: TcpState | None, now: float) -> float:
        """How long the reader has taken nothing although a write waits for it.

        Modifies the clock: bytes that reached the client since the last call start it again, so a
        slow reader of a large answer is not taken for one that stopped. On HTTP/2 the bytes may be
        another stream's, so there only the end of the write counts.
        """
        if state is not None and state.num_bytes_acked != self._num_bytes_acked:
            self._num_bytes_acked = state.num_bytes_acked
            if self._write_began_at is not None and not self.is_http2:
                self._write_began_at = now
        return 0.0 if self._write_began_at is None else now - self._write_began_at

    def end(self, reason: AbortReason, *, is_connection_closed: bool) -> None:
        """Aborts the sequences, then ends the request, then the connection. Not a checkpoint.

        The order matters: the pages come first, because the write may go on hanging where the
        socket cannot be found. The connection is shut down rather than left to Hypercorn, whose
        write is shielded from the cancellation and which would answer a request that was cancelled
        by us with a 500.
        """
        if not self.is_ended:
            self.is_ended = True
            if self.on_end is not None and not self.is_finishing:
                self.on_end(reason)
            # An HTTP/2 response waits for its reader without a shield, and its end closes nothing.
            if self.is_http2 or not self.is_finishing:
                self.cancel_scope.cancel()
        if is_connection_closed and self.socket is not None:
            self.socket.shutdown()


class OpenRequests:
    """All open requests of the process; owned by the app."""

    def __init__(self) -> None:
        self._requests: dict[OpenRequest, None] = {}
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[OpenRequest]:
        return iter(tuple(self._requests))

    @contextmanager
    def opened(self, request: OpenRequest) -> Iterator[None]:
        """Around a request, from before its handler until after its last byte."""
        self._requests[request] = None
        self._notify()
        try:
            yield
        finally:
            del self._requests[request]
            self._notify()

    async def wait_some(self) -> None:
        """Until a request is open."""
        while not self._requests:
            await self._changed.wait()

    async def wait_none(self) -> None:
        """Until no request is open; for the drain."""
        while self._requests:
            await self._changed.wait()

    def end_pending_writes(self) -> int:
        """Ends every request that waits for its reader right now, and its connection.

        For the last moment of a drain: nobody may keep the process by not reading. On HTTP/2 the
        whole connection goes. Returns how many there were.
        """
        self.locate_sockets()
        pending = [request for request in self if request.is_write_pending]
        for request in pending:
            request.end(AbortReason.SHUTDOWN, is_connection_closed=True)
        return len(pending)

    def locate_sockets(self) -> None:
        """Finds the sockets of the requests that came without one, in one pass."""
        lost = [request for request in self if request.socket is None and request.addresses]
        found = find_connections({pair for request in lost if (pair := request.addresses)})
        for request in lost:
            if request.addresses is not None:
                request.socket = found.get(request.addresses)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


async def watch_connections(
    requests: OpenRequests, *, stall_timeout_s: float, poll_s: float = DEFAULT_POLL_S
) -> NoReturn:
    """Ends the requests that nobody reads any more. Runs in the engine nursery until cancelled.

    - A write that has waited `stall_timeout_s` without a byte getting through: the sequences are
      aborted first, then the connection is closed. On HTTP/2 only the stream is reset, and the
      connection is closed if it does not take that either.
    - A client that closed or half closed an HTTP/1.1 connection which Hypercorn has not noticed:
      bytes pipelined behind the request have parked its reader.

    Polling, because neither can be waited for: the socket is Hypercorn's, which reads it, and Trio
    lets only one task wait for a socket to become readable. A request that is over within one poll
    costs nothing, and with no request open the watch sleeps.
    """
    while True:
        await requests.wait_some()
        await trio.sleep(poll_s)
        now = trio.current_time()
        old = [request for request in requests if now - request.opened_at >= poll_s]
        if any(request.socket is None for request in old):
            requests.locate_sockets()
        for request in old:
            state = None if request.socket is None else request.socket.state()
            if request.stalled_for_s(state, now) >= stall_timeout_s:
                if not request.is_ended:
                    logger.info(
                        "%s took nothing for %g s: aborted", _name(request), stall_timeout_s
                    )
                request.end(
                    AbortReason.STALLED,
                    is_connection_closed=request.is_ended or not request.is_http2,
                )
            elif state is not None and state.has_peer_closed and not request.is_http2:
                request.end(AbortReason.CANCELLED, is_connection_closed=True)


def _name(request: OpenRequest) -> str:
    if request.addresses is None:
        return "a reader"
    host, port = request.addresses[0]
    return f"reader {host}:{port}"
