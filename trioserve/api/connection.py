"""The ASGI HTTP connection of the app: a request is a scope.

`RequestConnection` is Quart-Trio's class for one request with four things put right:

- one exit stack encloses both the handler and the sending of the body. Quart sends the headers
  before it enters the body, and a response generator that never started runs no `finally`, so
  nothing that must be undone may live in the generator;
- the request is not cancelled once its last body message is on its way. Hypercorn delivers
  `http.disconnect` at the end of every response, from the very task that then closes or recycles
  the connection: cancelled there, `Connection: close` closes nothing and idle connections stay;
- no response is cut after Quart's RESPONSE_TIMEOUT, whatever route made it;
- the watch in `open_requests` knows when a write waits for its reader.
"""

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import quart
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, HTTPScope
from quart import Quart
from quart.asgi import ASGIHTTPConnection
from quart.wrappers import Request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection

from trioserve.api.http2 import reset_stream
from trioserve.api.open_requests import OpenRequest, OpenRequests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trioserve.listen import AddressPair

OPEN_REQUEST_KEY = "trioserve.open_request"
RESET_KEY = "trioserve.reset_stream"
"""In the scope: asyncio_host's way to reset a stream, where `send` is not Hypercorn's own."""
SOCKET_KEY = "trioserve.socket"
"""In the scope's state: the connection's socket, put there by containment.py."""

FINISH_GRACE_S = 5.0


class RequestConnection(TrioASGIHTTPConnection):
    """One HTTP request of a ScopedApp; Quart makes one for each and calls it once."""

    def __init__(self, app: Quart, scope: HTTPScope) -> None:
        super().__init__(app, scope)
        self._open_requests = cast("ScopedApp", app).open_requests
        self._record = _record(scope)
        self._is_begun = False
        self._is_complete = False

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        request = self._create_request_from_scope(send)
        cast("dict[str, Any]", request.scope)[OPEN_REQUEST_KEY] = self._record
        with self._open_requests.opened(self._record):
            try:
                with self._record.cancel_scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self.handle_messages, nursery, request, receive)
                        await self.handle_request(nursery, request, send)
            except Exception:
                await self._reset_if_cut(send)
                raise
            await self._reset_if_cut(send)

    async def handle_messages(  # type: ignore[override]  # Quart-Trio's signature, not Quart's
        self, nursery: trio.Nursery, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        # Quart's own loop, past Quart-Trio's override, which cancels whenever the loop ends.
        await ASGIHTTPConnection.handle_messages(self, request, receive)
        if self._record.is_finishing:
            # At the end of a response this disconnect is nothing but the end, and the task that
            # sends is done within a few steps of the scheduler. On HTTP/2 a client that drops the
            # connection now leaves that task waiting for ever, so the wait has a bound.
            await trio.sleep(FINISH_GRACE_S)
        nursery.cancel_scope.cancel()

    async def handle_request(  # type: ignore[override]  # as above
        self, nursery: trio.Nursery, request: Request, send: ASGISendCallable
    ) -> None:
        with self._record.stack:
            response = await self.app.handle_request(request)
            await self._send_response(partial(self._send, send), response)
        nursery.cancel_scope.cancel()

    async def _send(self, send: ASGISendCallable, message: ASGISendEvent) -> None:
        self._is_begun = True
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last:
            self._record.is_finishing = True
        with self._record.pending_write():
            await send(message)
        self._is_complete = is_last

    async def _reset_if_cut(self, send: ASGISendCallable) -> None:
        """On HTTP/2, a response that ended early would leave its client waiting for the rest."""
        if self._record.is_http2 and self._is_begun and not self._is_complete:
            scope = cast("dict[str, Any]", self.scope)
            reset: Callable[[], Awaitable[None]] = scope.get(RESET_KEY, partial(reset_stream, send))
            # A write like any other: a connection that takes not even this is closed by the watch.
            with self._record.pending_write():
                await reset()


def _record(scope: HTTPScope) -> OpenRequest:
    client, server = scope.get("client"), scope.get("server")
    addresses: AddressPair | None = None
    if client and server and server[1] is not None:
        addresses = ((client[0], client[1]), (server[0], server[1]))
    return OpenRequest(
        is_http2=scope["http_version"] == "2",
        addresses=addresses,
        opened_at=trio.current_time(),
        socket=cast("dict[str, Any]", scope.get("state") or {}).get(SOCKET_KEY),
    )


class ScopedApp(QuartTrio):
    """A QuartTrio app whose requests are scopes; the real app derives from it."""

    asgi_http_class = RequestConnection

    def __init__(self, import_name: str, **kwargs: Any) -> None:
        super().__init__(import_name, **kwargs)
        self.open_requests = OpenRequests()


def open_request() -> OpenRequest:
    """The record of the request that is being handled. For handlers; not a checkpoint."""
    return cast("OpenRequest", cast("dict[str, Any]", quart.request.scope)[OPEN_REQUEST_KEY])


def request_stack() -> ExitStack:
    """What is entered here ends with the request, for whatever reason that ends.

    For handlers: open the stream here before returning the response. Exits must not wait: the task
    may be cancelled.
    """
    return open_request().stack
