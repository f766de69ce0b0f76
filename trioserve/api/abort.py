"""`POST /abort_request`."""

from typing import TYPE_CHECKING

import structlog
from quart import Response

from trioserve.api.body import read_body
from trioserve.api.errors import quoted
from trioserve.api.schema.abort import parse_abort
from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.batch import Batch
from trioserve.engine.embedding_batch import EmbeddingBatch
from trioserve.engine.engine import Engine

if TYPE_CHECKING:
    from trioserve.engine.embedding import OpenEmbedding
    from trioserve.engine.stream import RequestStream

log = structlog.get_logger("trioserve.api")


async def abort_request(engine: Engine) -> Response:
    """The handler. A checkpoint; what it aborts has ended, and no token follows, when it returns.

    Each aborted request's own reader gets its partial text, with `finish_reason: "abort"`.
    """
    # Also while draining: that is when an operator wants it.
    request = await read_body(parse_abort, lambda: _loaded(engine))
    # The contract answers an unknown id like any other: the log is where one sees the difference.
    if request.abort_all:
        log.info("abort of all requested", num_aborted=_abort_all(engine))
    else:
        assert request.rid is not None, "parse_abort lets neither through"
        num_aborted = _abort_one(engine, request.rid)
        log.info("abort requested", rid=quoted(request.rid), num_aborted=num_aborted)
    # Plain, because nothing is not JSON.
    return Response(b"", content_type="text/plain; charset=utf-8")


def _abort_all(engine: Engine) -> int:
    unfinished: list[RequestStream | OpenEmbedding] = []
    for batch in _loaded(engine):
        opened = batch.requests if isinstance(batch, EmbeddingBatch) else batch.streams
        unfinished += [request for request in opened if not request.is_finished]
    for request in unfinished:
        engine.abort(request, AbortReason.REQUESTED)
    return len(unfinished)


def _abort_one(engine: Engine, rid: str) -> int:
    # Only what generates is named by its client.
    batches = [batch for batch in _loaded(engine) if isinstance(batch, Batch)]
    found = batches[0].handles.find(rid) if batches else None
    if found is None:
        return 0
    stream, generation_index = found
    if stream.is_finished:
        return 0
    if generation_index is None:
        engine.abort(stream, AbortReason.REQUESTED)
    else:
        engine.batch.abort_generation(stream, generation_index, AbortReason.REQUESTED)
    return 1


def _loaded(engine: Engine) -> tuple[Batch | EmbeddingBatch, ...]:
    """Raises Unavailable until there are models."""
    assert engine.directory.models, "a server without a model"
    return engine.batches
