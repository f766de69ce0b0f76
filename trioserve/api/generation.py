"""From a valid body to an open stream: what completions and chat do alike."""

import secrets
from math import inf
from uuid import uuid4

import trio
from attrs import frozen

from trioserve.api.accounting import current_account
from trioserve.api.connection import open_request
from trioserve.api.errors import invalid
from trioserve.api.schema import GenerationParams, TokenIds
from trioserve.config import ServerConfig
from trioserve.core import SamplingParams, StopParams
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest
from trioserve.engine.stream import RequestStream
from trioserve.errors import ModelNotFound, RequestError, Unavailable
from trioserve.text.tokenizer import Tokenizer

LONG_TEXT_CHARS = 16 * 1024
"""Longer texts are tokenized off the event loop, where they would hold up every stream."""

_tokenizing = trio.CapacityLimiter(2)


@frozen
class Limit:
    """How many tokens a choice may have, and whether the client said so."""

    max_tokens: int
    is_explicit: bool
    param: str


def check_model(model: str, config: ServerConfig) -> None:
    """Raise ModelNotFound unless `model` is served here."""
    if model not in (*config.served_names, config.model_path):
        raise ModelNotFound(model)


async def encode(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> TokenIds:
    """The ids of a prompt. A checkpoint for long texts."""

    def work() -> TokenIds:
        return tuple(tokenizer.encode(text, add_special_tokens=add_special_tokens))

    if len(text) <= LONG_TEXT_CHARS:
        return work()
    # Abandoned when the client leaves: it touches nothing but the text, and it holds its place in
    # the limiter until it is done.
    return await trio.to_thread.run_sync(work, limiter=_tokenizing, abandon_on_cancel=True)


def check_token_ids(prompt: TokenIds, vocab_size: int) -> None:
    """Raise RequestError for an id that the model does not have."""
    for token_id in prompt:
        if not 0 <= token_id < vocab_size:
            raise invalid(
                f"prompt contains token id {token_id} outside [0, {vocab_size - 1}]", "prompt"
            )


def fit_limit(limit: Limit, num_prompt_tokens: int, max_model_len: int) -> int:
    """Tokens that a choice of this prompt may have. Raises RequestError if it cannot fit."""
    most = f"This model's maximum context length is {max_model_len} tokens. However, "
    if num_prompt_tokens >= max_model_len:
        raise RequestError(
            f"{most}your prompt has {num_prompt_tokens} tokens.",
            param="prompt",
            code="context_length_exceeded",
        )
    requested = num_prompt_tokens + limit.max_tokens
    if requested <= max_model_len:
        return limit.max_tokens
    if limit.is_explicit:
        raise RequestError(
            f"{most}you requested {requested} tokens ({num_prompt_tokens} in the prompt, "
            f"{limit.max_tokens} in the completion).",
            param=limit.param,
            code="context_length_exceeded",
        )
    return max_model_len - num_prompt_tokens


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
    info = engine.model.info
    max_tokens = min(fit_limit(limit, len(prompt), info.max_model_len) for prompt in prompts)
    request = GenerateRequest(
        request_id=f"{id_prefix}-{uuid4().hex}",
        prompts=prompts,
        num_samples=params.num_samples,
        sampling=SamplingParams(
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            min_p=params.min_p,
            seed=secrets.randbits(63) if params.seed is None else params.seed,
        ),
        stop=StopParams(
            max_tokens=max_tokens, strings=params.stop, is_eos_ignored=params.is_eos_ignored
        ),
        timeout_s=engine.config.request_timeout,
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
