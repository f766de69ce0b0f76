"""WebSocket handshakes, which nothing here accepts.

Quart would dispatch them past the hooks that open a request's account and ask for a key, so that
their refusal would fail in turn and end as a 500 without a body.
"""

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, WebsocketScope
from quart import Quart

from trioserve.api.accounting import request_id_for
from trioserve.api.auth import Gate
from trioserve.api.errors import ApiError, invalid, to_api_error


class RefusedWebsocket:
    """Answers one handshake with the error envelope; Quart makes one for each."""

    def __init__(self, gate: Gate, app: Quart, scope: WebsocketScope) -> None:
        self._has_responses = "websocket.http.response" in (scope.get("extensions") or {})
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self._request_id = request_id_for(headers.get(b"x-request-id"))
        self._error: ApiError = gate.refusal(
            "GET", scope["path"], headers.get(b"authorization")
        ) or to_api_error(invalid("WebSocket is not supported", None), self._request_id)

    async def __call__(self, _receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if not self._has_responses:
            await send({"type": "websocket.close", "code": 1000, "reason": None})
            return
        body = self._error.body()
        named = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "X-Request-Id": self._request_id,
            **self._error.headers,
        }
        await send(
            {
                "type": "websocket.http.response.start",
                "status": self._error.status,
                "headers": [
                    (name.lower().encode(), value.encode()) for name, value in named.items()
                ],
            }
        )
        await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
