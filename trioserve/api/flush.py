"""`GET` and `POST /flush_cache`."""

import structlog
from quart import Response

from trioserve.api.errors import invalid
from trioserve.engine.engine import Engine

log = structlog.get_logger("trioserve.api")

BUSY = "the cache cannot be flushed while requests run or wait"


async def flush_cache(engine: Engine) -> Response:
    """The handler, of a request without a body. A checkpoint where there are tiers.

    Raises RequestError while anything runs or waits, and Unavailable unless the engine serves.
    """
    if not await engine.flush_cache():
        raise invalid(BUSY, None)
    log.info("prefix cache flushed")
    return Response(b"Cache flushed.", content_type="text/plain; charset=utf-8")
