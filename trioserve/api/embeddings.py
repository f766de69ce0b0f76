"""`POST /v1/embeddings`."""

from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from uuid import uuid4

import numpy as np
import orjson
import structlog
import trio
from quart import Response

from trioserve.api.accounting import RequestAccount, current_account
from trioserve.api.admission import wait_started
from trioserve.api.body import read_body
from trioserve.api.connection import open_request
from trioserve.api.errors import invalid
from trioserve.api.model_names import embedding_model, find_model, shown_name
from trioserve.api.prompts import encode_inputs
from trioserve.api.schema.declare import check_limits
from trioserve.api.schema.embeddings import EmbeddingBody, parse_embedding
from trioserve.api.schema.limits import limits_of
from trioserve.engine.embedding import EmbeddingRequest, OpenEmbedding, Vector
from trioserve.engine.engine import Engine
from trioserve.engine.served import ServedEmbedder

log = structlog.get_logger("trioserve.api")

_VECTORS_AT_ONCE = 16
"""Vectors written between two checkpoints: a fraction of a millisecond."""


async def embed(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body = await read_body(parse_embedding, engine.check_serving)
    model = embedding_model(engine, body.model)
    check_limits(body, limits_of(engine.config, model.info.vocab_size))
    named = find_model(engine, body.model, is_generation=False)
    check_dimensions(body.dimensions, model)
    engine.check_embedding_queue()
    inputs = await encode_inputs(model, body.input)
    request = EmbeddingRequest(f"embd-{uuid4().hex}", inputs, engine.config.request_timeout)
    opened = await _open_embedding(engine, request)
    vectors = await opened.wait_vectors()
    if body.dimensions is not None and body.dimensions < model.size:
        vectors = [_shortened(vector, body.dimensions) for vector in vectors]
    return await _respond(body, shown_name(body.model, named), vectors, request.num_tokens)


def check_dimensions(dimensions: int | None, model: ServedEmbedder) -> None:
    """Raise RequestError for a number of components that the model's vectors cannot have."""
    if dimensions is None or dimensions == model.size:
        return
    if not 1 <= dimensions <= model.size:
        raise invalid(f"dimensions must be between 1 and {model.size}", "dimensions")
    if model.matryoshka is None:
        raise invalid("this model does not support the dimensions parameter", "dimensions")
    sizes = model.matryoshka.sizes
    if sizes and dimensions not in sizes:
        listed = ", ".join(map(str, sorted({*sizes, model.size})))
        raise invalid(f"dimensions must be one of {listed}", "dimensions")


async def _open_embedding(engine: Engine, request: EmbeddingRequest) -> OpenEmbedding:
    """Admit the request on the exit stack of its connection, and wait for its first step.

    A checkpoint. Raises Unavailable, or what ended the request.
    """
    connection = open_request()
    _log_at_end(connection.stack, request, current_account())
    opened = connection.stack.enter_context(engine.open_embedding(request))
    await wait_started(engine, connection, opened)
    return opened


def _log_at_end(stack: ExitStack, request: EmbeddingRequest, account: RequestAccount) -> None:
    def write() -> None:
        if account.outcome in ("ok", "cancelled"):  # the account itself tells of what was refused
            log.info(
                "request",
                id=request.request_id,
                endpoint=account.endpoint,
                outcome=account.outcome,
                prompt_tokens=request.num_tokens,
                inputs=len(request.inputs),
                duration_s=round(trio.current_time() - account.opened_at, 3),
            )

    stack.callback(write)


def _shortened(vector: Vector, size: int) -> Vector:
    kept = vector[:size]
    length = np.linalg.norm(kept)
    return kept / length if length else kept


async def _respond(
    body: EmbeddingBody, model: str, vectors: Sequence[Vector], num_tokens: int
) -> Response:
    """The whole answer. A checkpoint: two thousand vectors take a tenth of a second to write."""
    is_base64 = body.encoding_format == "base64"
    items: list[bytes] = []
    for index, vector in enumerate(vectors):
        if index % _VECTORS_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        written = b64encode(vector.astype("<f4").tobytes()).decode() if is_base64 else vector
        item = {"object": "embedding", "index": index, "embedding": written}
        items.append(orjson.dumps(item, option=orjson.OPT_SERIALIZE_NUMPY))
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    # The vectors come last, so that they can be put in where an empty array ends.
    head = orjson.dumps({"object": "list", "model": model, "usage": usage, "data": []})
    content = b"".join([head[:-2], b",".join(items), b"]}"])
    return Response(content, content_type="application/json")
