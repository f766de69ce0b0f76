"""WebSocket handshakes, which nothing here accepts.

Quart would dispatch them past the hooks that open a request's account, so that their refusal would
fail in turn and end as a 500 without a body.
"""

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, WebsocketScope
from quart import Quart

from trioserve.api.errors import invalid, to_api_error


class RefusedWebsocket:
    """Answers one handshake with the error envelope; Quart makes one for each."""

    def __init__(self, app: Quart, scope: WebsocketScope) -> None:
        self._has_responses = "websocket.http.response" in (scope.get("extensions") or {})

    async def __call__(self, _receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if not self._has_responses:
            await send({"type": "websocket.close", "code": 1000, "reason": None})
            return
        error = to_api_error(invalid("WebSocket is not supported", None), request_id="")
        body = error.body()
        await send(
            {
                "type": "websocket.http.response.start",
                "status": error.status,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", b"%d" % len(body)),
                ],
            }
        )
        await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
