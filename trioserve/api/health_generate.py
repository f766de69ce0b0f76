"""`GET /health_generate`: whether a token can be generated, and not only whether one could ask."""

from contextlib import AbstractContextManager, ExitStack
from typing import Any
from uuid import uuid4

import trio

from trioserve.core import SamplingParams, StopParams
from trioserve.engine.batch import Batch
from trioserve.engine.embedding import EmbeddingRequest, OpenEmbedding
from trioserve.engine.embedding_batch import EmbeddingBatch
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.stream import RequestStream
from trioserve.errors import Unavailable

LIMIT_S = 20.0
POLL_S = 0.05
PROMPT = (0,)
"""Some token: every vocabulary has it."""


async def health_generate(engine: Engine) -> dict[str, Any]:
    """One greedy token, or one that somebody else got since the call began. A checkpoint.

    An embedding server computes one vector instead. Raises Unavailable after `LIMIT_S`, or at once
    if the engine does not serve. What it computes ends with the call, so also when the client
    leaves.
    """
    engine.check_healthy()
    batch = engine.batches[0]
    before = _progress(batch)
    probe: RequestStream | OpenEmbedding | None = None
    with trio.move_on_after(LIMIT_S), ExitStack() as probes:
        # A poll: nothing in the engine waits for single tokens, for the sake of a check that a
        # load balancer makes every few seconds.
        while _progress(batch) == before:
            engine.check_healthy()
            # Where no slot is free the tokens of others are the proof. An old probe has ended
            # without a token only if all requests were aborted.
            if _has_free_slot(batch) and (probe is None or probe.is_finished):
                probe = probes.enter_context(_open_probe(engine, batch))
            await trio.sleep(POLL_S)
        return {"status": "ok"}
    raise Unavailable(f"No token was generated within {LIMIT_S:.0f} s.", code="overloaded")


def _progress(batch: Batch | EmbeddingBatch) -> float:
    """Tokens generated or, where there are none, steps computed."""
    if isinstance(batch, EmbeddingBatch):
        return batch.last_retired
    name = "trioserve_generation_tokens_total"
    return batch.statistics.registry.get_sample_value(name) or 0.0


def _has_free_slot(batch: Batch | EmbeddingBatch) -> bool:
    slots = batch if isinstance(batch, EmbeddingBatch) else batch.scheduler
    return slots.num_over_slots is None


def _open_probe(
    engine: Engine, batch: Batch | EmbeddingBatch
) -> AbstractContextManager[RequestStream | OpenEmbedding]:
    request_id = f"health-{uuid4().hex}"
    if isinstance(batch, EmbeddingBatch):
        return engine.open_embedding(EmbeddingRequest(request_id, (PROMPT,), None))
    generation = Generation(PROMPT, 1, SamplingParams(temperature=0.0), StopParams())
    return engine.open_stream(GenerateRequest(request_id, (generation,), num_samples=1))
