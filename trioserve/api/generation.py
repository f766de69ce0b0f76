"""From token ids to an open stream: what completions and chat do alike."""

import secrets
from math import inf
from uuid import uuid4

import trio
from attrs import frozen

from trioserve.api.accounting import current_account
from trioserve.api.connection import open_request
from trioserve.api.prompts import context_exceeded
from trioserve.api.schema import GenerationParams, TokenIds
from trioserve.config import ServerConfig
from trioserve.core import ModelInfo, SamplingParams, StopParams
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.stream import RequestStream
from trioserve.errors import ModelNotFound, Unavailable


@frozen
class Limit:
    """How many tokens a choice may have, and whether the client said so."""

    max_tokens: int
    is_explicit: bool
    param: str
    prompt_param: str
    """The field that the prompt came from."""


def check_model(model: str, config: ServerConfig) -> None:
    """Raise ModelNotFound unless `model` is served here; spaces around it do not matter."""
    if model.strip() not in (*config.served_names, config.model_path):
        raise ModelNotFound(model)


def fit_limit(limit: Limit, num_prompt_tokens: int, info: ModelInfo, capacity_tokens: int) -> int:
    """Tokens that a choice of this prompt may have. Raises RequestError if it cannot fit.

    What the cache can never hold is refused by the engine; a default only keeps clear of it.
    """
    most = info.max_model_len
    if num_prompt_tokens >= most:
        what = f"your prompt has {num_prompt_tokens} tokens"
        raise context_exceeded(most, what, limit.prompt_param)
    if not limit.is_explicit:
        # The last token is never fed back, so it needs no room in the cache.
        room = min(most, capacity_tokens + 1) - num_prompt_tokens
        return max(1, min(limit.max_tokens, room))
    requested = num_prompt_tokens + limit.max_tokens
    if requested > most:
        what = (
            f"you requested {requested} tokens ({num_prompt_tokens} in the prompt, "
            f"{limit.max_tokens} in the completion)"
        )
        raise context_exceeded(most, what, limit.param)
    return limit.max_tokens


async def open_generation(
    engine: Engine,
    params: GenerationParams,
    prompts: tuple[TokenIds, ...],
    limit: Limit,
    id_prefix: str,
) -> RequestStream:
    """Admit the request on the exit stack of its connection, and wait for its first step.

    A checkpoint. After it nothing but the engine itself can refuse the request, so the caller may
    send headers. Raises RequestError or Unavailable.
    """
    capacity = engine.batch.scheduler.capacity_tokens()
    info = engine.model.info
    sampling = SamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        seed=secrets.randbits(63) if params.seed is None else params.seed,
    )
    stop = StopParams(strings=params.stop, is_eos_ignored=params.is_eos_ignored)
    request = GenerateRequest(
        request_id=f"{id_prefix}-{uuid4().hex}",
        generations=tuple(
            Generation(prompt, fit_limit(limit, len(prompt), info, capacity), sampling, stop)
            for prompt in prompts
        ),
        num_samples=params.num_samples,
        timeout_s=engine.config.request_timeout,
        limit_param=limit.param if limit.is_explicit else limit.prompt_param,
    )
    connection = open_request()
    stream = connection.stack.enter_context(engine.open_stream(request))
    current_account().stream = stream
    connection.on_end = lambda: engine.abort(stream, "disconnected")
    queue_timeout_s = engine.config.queue_timeout
    with trio.move_on_after(inf if queue_timeout_s is None else queue_timeout_s) as queue:
        await stream.wait_started()
    if queue.cancelled_caught:
        engine.abort(stream, "queue_timeout")
        raise Unavailable(
            f"The request waited longer than {queue_timeout_s} s for a free slot.",
            code="queue_timeout",
        )
    return stream
