"""Reading a request's JSON body, in the contract's order of checks."""

from collections.abc import Callable
from typing import Any, TypeVar

import orjson
import trio
from quart import request

from trioserve.api.errors import invalid

LARGE_BODY_BYTES = 256 * 1024
"""Larger bodies are read and checked off the event loop: millions of token ids fit in one, and
looking at each would hold up every stream."""

T = TypeVar("T")

_parsing = trio.CapacityLimiter(2)


async def read_body(parse: Callable[[dict[str, Any]], T], check_serving: Callable[[], object]) -> T:
    """What `parse` makes of the request's body. A checkpoint.

    `check_serving` raises where the engine is in no state to serve the request, which the contract
    wants to be said before any field is looked at. `parse` must need nothing but the body. Raises
    RequestError, Unavailable, or Quart's own 408 and 413.
    """
    data = await request.get_data(cache=False, as_text=False)
    media_type = request.mimetype
    if media_type != "application/json" and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        raise invalid("Content-Type must be application/json", None, "unsupported_media_type")
    is_large = len(data) > LARGE_BODY_BYTES
    body = await _run(lambda: _json_object(data), is_large)
    check_serving()
    return await _run(lambda: parse(body), is_large)


def _json_object(data: str | bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise invalid(f"body is not valid JSON: {error}", None, "invalid_json") from error
    if not isinstance(body, dict):
        raise invalid("body must be a JSON object", None, "invalid_json")
    return body


async def _run(work: Callable[[], T], is_large: bool) -> T:
    if not is_large:
        return work()
    # Abandoned when the client leaves: it touches nothing but the body, and it holds its place in
    # the limiter until it is done.
    return await trio.to_thread.run_sync(work, limiter=_parsing, abandon_on_cancel=True)
