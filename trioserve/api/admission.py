"""What follows an admission, whatever was admitted: the wait for its first step."""

from functools import partial
from math import inf

import trio

from trioserve.api.open_requests import OpenRequest
from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.embedding import OpenEmbedding
from trioserve.engine.engine import Engine
from trioserve.engine.stream import RequestStream
from trioserve.errors import Unavailable


async def wait_started(
    engine: Engine, connection: OpenRequest, opened: RequestStream | OpenEmbedding
) -> None:
    """Wait for the first step of what the connection's stack holds open. A checkpoint.

    If the client leaves, here or later, it is aborted. Raises Unavailable after --queue-timeout, or
    what ended the request.
    """
    connection.on_end = partial(engine.abort, opened)
    queue_timeout_s = engine.config.queue_timeout
    with trio.move_on_after(inf if queue_timeout_s is None else queue_timeout_s) as queue:
        await opened.wait_started()
    if queue.cancelled_caught:
        engine.abort(opened, AbortReason.QUEUE_TIMEOUT)
        raise Unavailable(
            f"The request waited longer than {queue_timeout_s} s for a free slot.",
            code="queue_timeout",
        )
