"""From prompts and messages to token ids, and the refusal of those that cannot be served."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import trio

from trioserve.api.errors import invalid
from trioserve.api.schema import Prompt, TokenIds
from trioserve.engine.served import ServedModel
from trioserve.errors import RequestError

LONG_TEXT_BYTES = 16 * 1024
"""Longer texts are rendered and tokenized off the event loop, where they would hold up streams."""

T = TypeVar("T")

_tokenizing = trio.CapacityLimiter(2)


def check_token_ids(prompts: Iterable[Prompt], vocab_size: int) -> None:
    """Raise RequestError for an id that the model does not have."""
    for prompt in prompts:
        if isinstance(prompt, str) or (min(prompt) >= 0 and max(prompt) < vocab_size):
            continue
        wrong = next(token_id for token_id in prompt if not 0 <= token_id < vocab_size)
        raise invalid(f"prompt contains token id {wrong} outside [0, {vocab_size - 1}]", "prompt")


async def encode_prompts(model: ServedModel, prompts: Sequence[Prompt]) -> tuple[TokenIds, ...]:
    """The ids of each prompt; token ids as they are. A checkpoint if the texts are long.

    Raises RequestError.
    """
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]

    def work() -> tuple[TokenIds, ...]:
        for text in texts:
            _check_length(model, text, "prompt")
        return tuple(
            _encode(model, prompt, "prompt", add_special_tokens=True)
            if isinstance(prompt, str)
            else prompt
            for prompt in prompts
        )

    return await _run(work, texts)


async def encode_messages(model: ServedModel, messages: Sequence[Mapping[str, Any]]) -> TokenIds:
    """The ids of a conversation. A checkpoint if it is long.

    Raises RequestError, ChatTemplateError or ChatTemplateMissing.
    """

    def work() -> TokenIds:
        text = model.tokenizer.render_chat(messages)
        _check_length(model, text, "messages")
        # The template writes every special token itself, BOS included.
        return _encode(model, text, "messages", add_special_tokens=False)

    return await _run(work, _texts(messages))


def context_exceeded(max_model_len: int, what: str, param: str) -> RequestError:
    """The refusal of a request that the model's context does not hold."""
    return RequestError(
        f"This model's maximum context length is {max_model_len} tokens. However, {what}.",
        param=param,
        code="context_length_exceeded",
    )


def _check_length(model: ServedModel, text: str, param: str) -> None:
    least, most = model.tokenizer.least_tokens(text), model.info.max_model_len
    if least >= most:
        raise context_exceeded(most, f"your prompt has at least {least} tokens", param)


def _encode(model: ServedModel, text: str, param: str, *, add_special_tokens: bool) -> TokenIds:
    token_ids = tuple(model.tokenizer.encode(text, add_special_tokens=add_special_tokens))
    if not token_ids:
        # Not every text has tokens: some vocabularies lack control characters.
        raise invalid("Prompt cannot be empty", param)
    return token_ids


async def _run(work: Callable[[], T], texts: Iterable[str]) -> T:
    if sum(len(text.encode()) for text in texts) <= LONG_TEXT_BYTES:
        return work()
    # Abandoned when the client leaves: it touches nothing but the text, and it holds its place in
    # the limiter until it is done.
    return await trio.to_thread.run_sync(work, limiter=_tokenizing, abandon_on_cancel=True)


def _texts(messages: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for message in messages:
        for value in message.values():
            if isinstance(value, str):
                yield value
            elif value is not None:
                yield from (part["text"] for part in value)
