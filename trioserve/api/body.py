"""Reading a request's JSON body, in the contract's order of checks."""

from typing import Any

import orjson
from quart import request

from trioserve.api.errors import invalid


async def read_json_object() -> dict[str, Any]:
    """The request's body. A checkpoint. Raises RequestError, or Quart's own 408 and 413."""
    data = await request.get_data(cache=False)
    media_type = request.mimetype
    if media_type != "application/json" and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        raise invalid("Content-Type must be application/json", None, "unsupported_media_type")
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise invalid(f"body is not valid JSON: {error}", None, "invalid_json") from error
    if not isinstance(body, dict):
        raise invalid("body must be a JSON object", None, "invalid_json")
    return body
