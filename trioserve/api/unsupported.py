"""Parameters that the API knows and this version does not serve.

A value that asks for nothing (null, or what the API documents as the default) is accepted, because
routers and SDKs send explicit defaults. Anything else is refused: ignoring it would mislead. A
parameter leaves this table when it is built.
"""

from collections.abc import Mapping
from typing import Any

from trioserve.api.errors import invalid
from trioserve.errors import RequestError

_NOTHING: tuple[Any, ...] = ()

_GENERATION: Mapping[str, tuple[Any, ...]] = {
    "audio": _NOTHING,
    "cache_salt": ("",),
    "custom_logit_processor": _NOTHING,
    "ebnf": _NOTHING,
    "frequency_penalty": (0,),
    "function_call": _NOTHING,
    "functions": _NOTHING,
    "input_embeds": _NOTHING,
    "json_schema": _NOTHING,
    "logit_bias": ({},),
    "min_tokens": (0,),
    "moderation": _NOTHING,
    "no_stop_trim": (False,),
    "presence_penalty": (0,),
    "regex": _NOTHING,
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_cached_tokens_details": (False,),
    "return_hidden_states": (False,),
    "return_prompt_token_ids": (False,),
    "return_routed_experts": (False,),
    "return_token_ids": (False,),
    "rid": _NOTHING,
    "skip_special_tokens": (True,),
    "stop_regex": ([],),
    "stop_token_ids": ([],),
    "use_beam_search": (False,),
    "web_search_options": _NOTHING,
}

COMPLETION_PARAMETERS: Mapping[str, tuple[Any, ...]] = {
    **_GENERATION,
    "echo": (False,),
    "logprobs": _NOTHING,
    "suffix": ("",),
}

CHAT_PARAMETERS: Mapping[str, tuple[Any, ...]] = {
    **_GENERATION,
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "echo": (False,),
    "input_ids": _NOTHING,
    "logprobs": (False,),
    "parallel_tool_calls": (True, False),  # without tools it asks for nothing
    "reasoning_effort": _NOTHING,
    "return_meta_info": (False,),
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}

_CHAT_NEVER = ("echo", "suffix", "best_of")


def _asks_for_nothing(value: Any, harmless: tuple[Any, ...]) -> bool:
    if isinstance(value, dict):  # a null inside is as good as nothing, too
        value = {name: inner for name, inner in value.items() if inner is not None}
    # 0 is not False here: types are checked as strictly as where the parameter is built.
    return value is None or any(
        value == accepted and isinstance(value, bool) == isinstance(accepted, bool)
        for accepted in harmless
    )


def _as_array(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def unsupported(name: str, *, is_chat: bool) -> RequestError:
    """The refusal of one parameter."""
    if is_chat and name in _CHAT_NEVER:
        detail = f"{name} is not supported on chat completions"
    else:
        detail = f"{name} is not supported by this server version; leave it out"
    return invalid(detail, name, "unsupported_parameter")


def refuse_unsupported(body: Mapping[str, Any], *, is_chat: bool, num_samples: int) -> None:
    """Raise RequestError for the first parameter that asks for what is not built."""
    table = CHAT_PARAMETERS if is_chat else COMPLETION_PARAMETERS
    for name, harmless in table.items():
        if name in body and not _asks_for_nothing(body[name], harmless):
            raise unsupported(name, is_chat=is_chat)
    if not _asks_for_nothing(body.get("best_of"), (num_samples,)):
        raise unsupported("best_of", is_chat=is_chat)
    if any(kind != "text" for kind in _as_array(body.get("modalities"))):
        raise unsupported("modalities", is_chat=is_chat)
    if any(path is not None for path in _as_array(body.get("lora_path"))):
        raise invalid(
            "LoRA is not enabled; start the server with --enable-lora or --lora-paths",
            "lora_path",
            "lora_not_available",
        )
