"""From the fields of a body to what the engine is asked: sampling, stops, cache and rank."""

import secrets

from trioserve.api.schema.generation import GenerationBody
from trioserve.api.schema.native_generate import NativeGenerateBody, NativeSampling
from trioserve.config import ServerConfig
from trioserve.core import CacheNamespace, SamplingParams, StopParams


def sampling_params(body: GenerationBody | NativeSampling) -> SamplingParams:
    """How tokens are drawn; a seed is made for a request that names none."""
    return SamplingParams(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=secrets.randbits(63) if body.seed is None else body.seed,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=body.repetition_penalty,
        logit_bias=body.logit_bias,
    )


def stop_params(body: GenerationBody | NativeSampling) -> StopParams:
    """What ends a choice before its token limit."""
    return StopParams(
        strings=body.stop,
        token_ids=frozenset(body.stop_token_ids),
        is_eos_ignored=body.ignore_eos,
        regexes=body.stop_regex,
        is_kept=body.no_stop_trim,
        min_tokens=body.min_tokens,
    )


def cache_namespace(
    body: GenerationBody | NativeGenerateBody, config: ServerConfig
) -> CacheNamespace | None:
    """With whom the request shares what was computed; None for nobody."""
    return None if config.disable_prefix_cache else CacheNamespace(body.cache_salt)


def priority(body: GenerationBody | NativeGenerateBody, config: ServerConfig) -> int:
    """The request's priority, where the server has them count."""
    return body.priority if config.enable_priority else 0
