"""From token ids to an open stream: what the endpoints that generate do alike."""

from collections.abc import Sequence
from uuid import uuid4

from attrs import frozen

from trioserve.api.accounting import current_account
from trioserve.api.admission import wait_started
from trioserve.api.connection import open_request
from trioserve.api.errors import invalid, quoted
from trioserve.api.params import cache_namespace, priority, sampling_params, stop_params
from trioserve.api.prompts import context_exceeded
from trioserve.api.schema.chat import ChatBody
from trioserve.api.schema.completions import CompletionBody
from trioserve.api.schema.rules import MIN_TOKENS, check_min_tokens
from trioserve.api.schema.tokens import TokenIds
from trioserve.core import ModelInfo, ReadoutParams
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.served import ServedModel
from trioserve.engine.stream import RequestStream

Body = CompletionBody | ChatBody


@frozen
class Limit:
    """How many tokens a choice may have, and whether the client said so."""

    max_tokens: int
    is_explicit: bool
    param: str
    prompt_param: str
    """The field that the prompt came from."""

    def most_prompt_tokens(self, max_model_len: int) -> int:
        """The longest prompt that the context takes: one that is only read may fill it."""
        return max_model_len if self.max_tokens == 0 else max_model_len - 1


def limit_of(body: Body, default: int) -> Limit:
    """The body's own limit, or `default`; `max_completion_tokens` wins over its older name."""
    newer, older = body.max_completion_tokens, body.max_tokens
    return Limit(
        max_tokens=next(limit for limit in (newer, older, default) if limit is not None),
        is_explicit=newer is not None or older is not None,
        param="max_tokens" if newer is None else "max_completion_tokens",
        prompt_param=body.prompt_param,
    )


def check_limit(body: Body, limit: Limit, model: ServedModel) -> None:
    """Raise RequestError for a `min_tokens` over the limit, whatever the prompt leaves of that."""
    eos_ids = model.tokenizer.eos_token_ids
    check_min_tokens(body, limit.max_tokens, eos_ids, model.info.vocab_size)


def fit_limit(limit: Limit, num_prompt_tokens: int, info: ModelInfo, capacity_tokens: int) -> int:
    """Tokens that a choice of this prompt may have. Raises RequestError if it cannot fit.

    What the cache can never hold is refused by the engine; a default only keeps clear of it.
    """
    most = info.max_model_len
    if num_prompt_tokens > limit.most_prompt_tokens(most):
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


def generate_request(
    engine: Engine,
    body: Body,
    prompts: Sequence[TokenIds],
    limit: Limit,
    readout: ReadoutParams,
    id_prefix: str,
) -> GenerateRequest:
    """What the engine is asked for. Raises RequestError if a prompt or a limit does not fit."""
    capacity = engine.batch.scheduler.capacity_tokens()
    info = engine.model.info
    sampling, stop = sampling_params(body), stop_params(body)
    generations = []
    for prompt in prompts:
        max_tokens = fit_limit(limit, len(prompt), info, capacity)
        if body.min_tokens > max_tokens:  # a default that the prompt has cut short
            raise invalid(MIN_TOKENS, "min_tokens")
        generations.append(
            Generation(
                prompt,
                max_tokens,
                sampling,
                stop,
                readout,
                body.skip_special_tokens,
                namespace=cache_namespace(body, engine.config),
                priority=priority(body, engine.config),
            )
        )
    return GenerateRequest(
        request_id=f"{id_prefix}-{uuid4().hex}" if body.rid is None else body.rid,
        generations=tuple(generations),
        num_samples=body.num_samples,
        timeout_s=engine.config.request_timeout,
        limit_param=limit.param if limit.is_explicit else limit.prompt_param,
    )


async def open_generation(engine: Engine, request: GenerateRequest) -> RequestStream:
    """Admit the request on the exit stack of its connection, and wait for its first step.

    A checkpoint. After it nothing but the engine itself can refuse the request, so the caller may
    send headers. Raises RequestError or Unavailable.
    """
    connection = open_request()
    # No checkpoint from here to the enqueue, or two requests could take one name.
    _check_names(engine, request)
    stream = connection.stack.enter_context(engine.open_stream(request))
    current_account().stream = stream
    await wait_started(engine, connection, stream)
    return stream


def _check_names(engine: Engine, request: GenerateRequest) -> None:
    for name in (request.request_id, *request.handles):
        if engine.batch.handles.find(name) is not None:
            raise invalid(f"rid '{quoted(name)}' is already in use", "rid")
