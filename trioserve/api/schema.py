"""The bodies of `/v1/completions` and `/v1/chat/completions`, parsed into frozen values.

Pure: knows neither the model nor the engine, so it runs before either is asked. Every message is
the API contract's own.
"""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.fields import (
    INT64_MAX,
    INT64_MIN,
    Body,
    get_bool,
    get_int,
    get_number,
    get_object,
    get_str,
    get_strings,
)
from trioserve.api.ignored import check_ignored, note_unknown
from trioserve.api.messages import parse_messages
from trioserve.api.unsupported import CHAT_PARAMETERS, COMPLETION_PARAMETERS, refuse_unsupported

MAX_SAMPLES = 128
MAX_STOPS = 64
MAX_PROMPTS = 2048

TokenIds = tuple[int, ...]
Prompt = str | TokenIds

_PROMPT_KINDS = (
    "prompt must be a string, an array of strings, an array of token ids, or an array of arrays "
    "of token ids"
)

_KNOWN = frozenset(
    """
    best_of ignore_eos lora_path max_completion_tokens max_tokens min_p modalities model n prompt
    seed stop stream stream_options temperature top_k top_p
    """.split()
)
_KNOWN_ON_COMPLETIONS = _KNOWN | COMPLETION_PARAMETERS.keys()
_KNOWN_ON_CHAT = _KNOWN | CHAT_PARAMETERS.keys() | {"messages"}


@frozen
class StreamOptions:
    """What a stream says about usage; `is_given` tells an absent object from an empty one."""

    is_given: bool
    includes_usage: bool
    has_continuous_usage: bool


@frozen
class GenerationParams:
    """What completions and chat have in common."""

    model: str
    """As sent, because the reply repeats it."""
    max_tokens: int | None
    """As asked for; None where the endpoint's default applies."""
    max_tokens_param: str
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    num_samples: int
    stop: tuple[str, ...]
    is_eos_ignored: bool
    is_streamed: bool
    stream_options: StreamOptions


@frozen
class CompletionRequest:
    """A valid body of `POST /v1/completions`."""

    params: GenerationParams
    prompts: tuple[Prompt, ...]


@frozen
class ChatRequest:
    """A body of `POST /v1/chat/completions`: messages or a raw prompt, see `check_rules`."""

    params: GenerationParams
    messages: tuple[dict[str, Any], ...] | None
    prompt: Prompt | None


def parse_completion(body: Body) -> CompletionRequest:
    """Raises RequestError for the first thing that is wrong."""
    params = _parse_params(body, is_chat=False)
    return CompletionRequest(params, _parse_prompts(body.get("prompt")))


def parse_chat(body: Body) -> ChatRequest:
    """Raises RequestError for the first thing that is wrong."""
    params = _parse_params(body, is_chat=True)
    prompt, messages = body.get("prompt"), body.get("messages")
    return ChatRequest(
        params,
        messages=None if messages is None else parse_messages(messages),
        prompt=None if prompt is None else _parse_raw_prompt(prompt),
    )


def check_rules(request: CompletionRequest | ChatRequest) -> None:
    """Raise RequestError for fields that are valid alone and not together.

    Apart from parsing, because the contract has the model looked up in between.
    """
    if request.params.max_tokens == 0:
        raise invalid("max_tokens must be at least 1 unless echo is true", "max_tokens")
    if isinstance(request, CompletionRequest):
        return
    if request.prompt is not None and request.messages is not None:
        raise invalid("only one of messages or prompt may be provided", "prompt")
    if request.prompt is None and request.messages is None:
        raise invalid(
            "either messages or prompt must be provided", "messages", "missing_required_parameter"
        )


def _parse_params(body: Body, *, is_chat: bool) -> GenerationParams:
    model = get_str(body, "model") or ""
    if not model.strip():
        raise invalid("model is required", "model", "missing_required_parameter")
    limit_name, max_tokens = _parse_max_tokens(body, is_chat=is_chat)
    temperature = get_number(body, "temperature", 1.0)
    if temperature < 0:
        raise invalid("temperature must be non-negative", "temperature")
    if temperature > 2:
        raise invalid("temperature must be between 0 and 2", "temperature")
    top_p = get_number(body, "top_p", 1.0)
    if not 0 < top_p <= 1:
        raise invalid("top_p must be in (0, 1]", "top_p")
    min_p = get_number(body, "min_p", 0.0)
    if not 0 <= min_p <= 1:
        raise invalid("min_p must be in [0, 1]", "min_p")
    top_k = get_int(body, "top_k", -1, -1, None, "top_k must be -1 (disabled) or at least 1")
    seed = get_int(body, "seed", None, INT64_MIN, INT64_MAX, "seed must be a 64-bit integer")
    num_samples = get_int(body, "n", 1, 1, MAX_SAMPLES, f"n must be between 1 and {MAX_SAMPLES}")
    assert top_k is not None, "top_k has a default"
    assert num_samples is not None, "n has a default"
    stop = get_strings(body, "stop")
    if any(not text for text in stop):
        raise invalid("stop sequences cannot be empty", "stop")
    if len(stop) > MAX_STOPS:
        raise invalid(f"at most {MAX_STOPS} stop sequences are allowed", "stop")
    options = get_object(body, "stream_options")
    params = GenerationParams(
        model=model,
        max_tokens=max_tokens,
        max_tokens_param=limit_name,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        num_samples=num_samples,
        stop=stop,
        is_eos_ignored=get_bool(body, "ignore_eos", False),
        is_streamed=get_bool(body, "stream", False),
        stream_options=StreamOptions(
            is_given=body.get("stream_options") is not None,
            includes_usage=get_bool(options, "include_usage", False, inside="stream_options"),
            has_continuous_usage=get_bool(
                options, "continuous_usage_stats", False, inside="stream_options"
            ),
        ),
    )
    get_bool(options, "include_obfuscation", False, inside="stream_options")  # without effect
    check_ignored(body)
    refuse_unsupported(body, is_chat=is_chat, num_samples=num_samples)
    note_unknown(body, _KNOWN_ON_CHAT if is_chat else _KNOWN_ON_COMPLETIONS)
    return params


def _parse_max_tokens(body: Body, *, is_chat: bool) -> tuple[str, int | None]:
    """`max_completion_tokens` wins over its older name. No upper bound: the context has one."""
    newer, older = "max_completion_tokens", "max_tokens"
    newer_value = get_int(body, newer, None, 1, None, f"{newer} must be at least 1")
    least = 1 if is_chat else 0  # see check_rules
    older_value = get_int(body, older, None, least, None, f"{older} must be at least {least}")
    return (older, older_value) if newer_value is None else (newer, newer_value)


def _parse_prompts(value: Any) -> tuple[Prompt, ...]:
    if value is None:
        raise invalid("prompt is required", "prompt", "missing_required_parameter")
    if isinstance(value, str):
        prompts: tuple[Prompt, ...] = (value,)
    elif not isinstance(value, list):
        raise invalid(_PROMPT_KINDS, "prompt", "invalid_type")
    elif not value:
        raise invalid("Prompt cannot be empty", "prompt")
    elif _types_of(value) == {str}:
        prompts = tuple(value)
    elif _types_of(value) == {list}:
        prompts = tuple(_parse_token_ids(element, _PROMPT_KINDS) for element in value)
    else:
        prompts = (_parse_token_ids(value, _PROMPT_KINDS),)
    if not all(prompts):
        raise invalid("Prompt cannot be empty", "prompt")
    if len(prompts) > MAX_PROMPTS:
        raise invalid(f"prompt has {len(prompts)} entries, the limit is {MAX_PROMPTS}", "prompt")
    return prompts


def _parse_raw_prompt(value: Any) -> Prompt:
    kinds = "prompt must be a string"
    if isinstance(value, list):
        prompt: Prompt = _parse_token_ids(value, kinds)
    elif isinstance(value, str):
        prompt = value
    else:
        raise invalid(kinds, "prompt", "invalid_type")
    if not prompt:
        raise invalid("Prompt cannot be empty", "prompt")
    return prompt


def _parse_token_ids(value: list[Any], kinds: str) -> TokenIds:
    types = _types_of(value)
    if types <= {int}:
        return tuple(value)
    if types <= {int, float} and all(element == int(element) for element in value):
        return tuple(map(int, value))
    raise invalid(kinds, "prompt", "invalid_type")


def _types_of(values: list[Any]) -> set[type]:
    # Millions of token ids fit in a body: no loop in Python over each.
    return set(map(type, values))
