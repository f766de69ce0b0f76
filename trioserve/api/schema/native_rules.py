"""Rules between the fields of `POST /generate`."""

from collections.abc import Collection

from trioserve.api.errors import invalid
from trioserve.api.schema.native_generate import NativeGenerateBody, NativeSampling
from trioserve.api.schema.one_or_many import OneOrMany
from trioserve.api.schema.rules import Rule, require_rules
from trioserve.api.schema.structured import ONLY_ONE, has_several


def _is_uneven(values: OneOrMany | None, body: NativeGenerateBody) -> bool:
    if values is None or not values.is_many:
        return False
    return len(values.values) != len(body.prompts.values)


def _has_twice(values: OneOrMany | None) -> bool:
    return values is not None and len(set(values.values)) < len(values.values)


NATIVE_RULES = (
    Rule(
        "input_ids",
        "only one of text or input_ids may be provided",
        lambda body: body.text is not None and body.input_ids is not None,
    ),
    Rule(
        "text",
        "either text or input_ids must be provided",
        lambda body: body.text is None and body.input_ids is None,
        "missing_required_parameter",
    ),
    Rule(
        "sampling_params",
        "sampling_params must have one entry for each prompt",
        lambda body: _is_uneven(body.sampling_params, body),
    ),
    Rule(
        "sampling_params",
        "n must be the same in all sampling_params",
        lambda body: any(each.n != body.num_samples for each in body.sampling_params.values),
    ),
    Rule(
        "rid",
        "rid must have one entry for each prompt",
        lambda body: _is_uneven(body.rid, body),
    ),
    Rule(
        "sampling_params",
        ONLY_ONE,
        lambda body: any(has_several(each) for each in body.sampling_params.values),
    ),
    Rule("rid", "rid must have different entries", lambda body: _has_twice(body.rid)),
    Rule(
        "top_logprobs_num",
        "top_logprobs_num requires return_logprob to be true",
        lambda body: body.top_logprobs_num > 0 and not body.return_logprob,
    ),
    Rule(
        "token_ids_logprob",
        "token_ids_logprob requires return_logprob to be true",
        lambda body: len(body.token_ids_logprob) > 0 and not body.return_logprob,
    ),
)

MIN_NEW_TOKENS = "min_new_tokens must be in [0, max_new_tokens]"
NO_TOKEN_LEFT = "min_new_tokens needs a token that does not stop the sample"


def check_native_rules(body: NativeGenerateBody) -> None:
    """Raise RequestError for the first rule that is broken."""
    require_rules(NATIVE_RULES, body)


def check_min_new_tokens(
    sampling: NativeSampling, max_tokens: int, eos_ids: Collection[int], vocab_size: int
) -> None:
    """Raise RequestError for a `min_new_tokens` that `max_tokens`, the final limit, does not allow.

    Also where every token of the vocabulary would stop the sample.
    """
    if sampling.min_new_tokens > max_tokens:
        raise invalid(MIN_NEW_TOKENS, "min_new_tokens")
    stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_ids)}
    if sampling.min_new_tokens > 0 and len(stops) >= vocab_size:
        raise invalid(NO_TOKEN_LEFT, "min_new_tokens")
