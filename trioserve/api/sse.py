"""Server-sent events: one `data:` line each, and what frames a stream of them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from quart import Response

from trioserve.api.errors import ApiError

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
"""A comment, for proxies that close what is silent; clients skip it."""

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


def event(payload: Mapping[str, Any]) -> bytes:
    """One event. JSON escapes line breaks, so it is one line."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """An error inside a stream that has begun; `DONE` must follow."""
    return b"data: " + error.body() + b"\n\n"


def stream_response(events: AsyncIterator[bytes]) -> Response:
    """A 200 whose body is `events`. What they read must already be open on the request's stack."""
    return Response(events, headers=_HEADERS)
