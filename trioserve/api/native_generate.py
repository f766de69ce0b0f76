"""`POST /generate`: SGLang's own endpoint."""

from uuid import uuid4

from quart import Response

from trioserve.api.body import read_body
from trioserve.api.cache_report import CacheReport
from trioserve.api.errors import invalid
from trioserve.api.generation import Limit, fit_limit, open_generation
from trioserve.api.model_names import generating_model
from trioserve.api.native_reply import NativeFrame, native_respond
from trioserve.api.params import cache_namespace, priority, sampling_params, stop_params
from trioserve.api.prompts import encode_prompts
from trioserve.api.schema.declare import check_limits
from trioserve.api.schema.limits import limits_of
from trioserve.api.schema.native_generate import (
    NativeGenerateBody,
    NativeSampling,
    parse_native_generate,
)
from trioserve.api.schema.native_rules import check_min_new_tokens, check_native_rules
from trioserve.api.schema.tokens import TokenIds
from trioserve.api.structured import structured
from trioserve.core import ReadoutParams
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.served import ServedModel
from trioserve.errors import RequestError


async def native_generate(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body = await read_body(parse_native_generate, engine.check_serving)
    model, config = generating_model(engine), engine.config
    check_limits(body, limits_of(config, model.info.vocab_size))
    check_native_rules(body)
    for sampling in body.sampling_params.values:
        eos_ids = model.tokenizer.eos_token_ids
        check_min_new_tokens(sampling, sampling.max_tokens, eos_ids, model.info.vocab_size)
    engine.check_queue()
    prompts = await _encode(model, body)
    request = _request(engine, body, prompts)
    request = await structured(engine, request, *body.sampling_params.values)
    stream = await open_generation(engine, request)
    return await native_respond(
        NativeFrame(stream, body, model.tokenizer, CacheReport.of(body, config)), config
    )


async def _encode(model: ServedModel, body: NativeGenerateBody) -> tuple[TokenIds, ...]:
    most_tokens = max(
        _limit(body, sampling).most_prompt_tokens(model.info.max_model_len)
        for sampling in body.sampling_params.values
    )
    try:
        return await encode_prompts(model, body.prompts.values, most_tokens)
    except RequestError as error:
        # What it calls a prompt has another name here.
        raise RequestError(error.message, param=body.prompt_param, code=error.code) from error


def _request(
    engine: Engine, body: NativeGenerateBody, prompts: tuple[TokenIds, ...]
) -> GenerateRequest:
    """What the engine is asked for. Raises RequestError if a prompt or a limit does not fit."""
    info, capacity = engine.model.info, engine.batch.scheduler.capacity_tokens()
    generations = []
    for prompt, sampling in zip(prompts, body.sampling_params.for_each(len(prompts)), strict=True):
        max_tokens = fit_limit(_limit(body, sampling), len(prompt), info, capacity)
        # Once more: a default may have been cut short by the prompt.
        check_min_new_tokens(sampling, max_tokens, (), info.vocab_size)
        generations.append(
            Generation(
                prompt,
                max_tokens,
                sampling_params(sampling),
                stop_params(sampling),
                _readout(body, len(prompt)),
                sampling.skip_special_tokens,
                namespace=cache_namespace(body, engine.config),
                priority=priority(body, engine.config),
            )
        )
    is_explicit = any(each.max_new_tokens is not None for each in body.sampling_params.values)
    request_id, handles = _names(body, len(prompts))
    return GenerateRequest(
        request_id=request_id,
        generations=tuple(generations),
        num_samples=body.num_samples,
        timeout_s=engine.config.request_timeout,
        limit_param="max_new_tokens" if is_explicit else body.prompt_param,
        handles=handles,
    )


def _names(body: NativeGenerateBody, num_prompts: int) -> tuple[str, tuple[str, ...]]:
    """The request's id, and those of its prompts if there may be several."""
    rid = body.rid
    if not body.prompts.is_many:
        return (rid.values[0] if rid is not None else uuid4().hex), ()
    if rid is not None and rid.is_many:
        return uuid4().hex, rid.values
    request_id = rid.values[0] if rid is not None else uuid4().hex
    return request_id, tuple(f"{request_id}_{index}" for index in range(num_prompts))


def _limit(body: NativeGenerateBody, sampling: NativeSampling) -> Limit:
    return Limit(
        max_tokens=sampling.max_tokens,
        is_explicit=sampling.max_new_tokens is not None,
        param="max_new_tokens",
        prompt_param=body.prompt_param,
    )


def _readout(body: NativeGenerateBody, num_prompt_tokens: int) -> ReadoutParams:
    start = body.logprob_start_len
    if start > num_prompt_tokens:
        message = f"logprob_start_len must be at most {num_prompt_tokens}, the prompt's length"
        raise invalid(message, "logprob_start_len")
    if not body.return_logprob:
        return ReadoutParams(has_hidden_state=body.return_hidden_states)
    return ReadoutParams(
        num_top=body.top_logprobs_num,
        prompt_from=start if 0 <= start < num_prompt_tokens else None,
        token_ids=body.token_ids_logprob,
        has_hidden_state=body.return_hidden_states,
    )
