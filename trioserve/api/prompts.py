"""From prompts and messages to token ids, and the refusal of those that cannot be served."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orjson
import trio

from trioserve.api.errors import invalid
from trioserve.api.schema.tokens import Prompt, TokenIds
from trioserve.engine.served import ServedEmbedder, ServedModel
from trioserve.errors import RequestError
from trioserve.text.chat_template import NO_VARIABLES, RESERVED_VARIABLES
from trioserve.text.token_offsets import OffsetText

LONG_TEXT_BYTES = 16 * 1024
"""Longer texts are rendered and tokenized off the event loop, where they would hold up streams."""
_BYTES_A_TOKEN = 4
"""A usual token; what a token id to decode counts for."""

T = TypeVar("T")

Check = Callable[[], None]
"""Called between two texts: ends the work of a thread whose request has gone."""

_tokenizing = trio.CapacityLimiter(2)


async def encode_prompts(
    model: ServedModel, prompts: Sequence[Prompt], most_tokens: int
) -> tuple[TokenIds, ...]:
    """The ids of each prompt; token ids as they are. A checkpoint if the texts are long.

    Raises RequestError. Most texts of more than `most_tokens` tokens are refused by their length
    alone; the caller has to look at the ids.
    """
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]

    def work(check: Check) -> tuple[TokenIds, ...]:
        for text in texts:
            _check_text(model, text, most_tokens, "prompt")
        return tuple(
            _require_tokens(tuple(model.tokenizer.encode(prompt)), "prompt")
            if isinstance(prompt, str)
            else prompt
            for prompt in checked(prompts, check)
        )

    return await run_long(work, sum(map(_num_bytes, texts)))


async def encode_with_offsets(
    model: ServedModel, prompts: Sequence[Prompt], most_tokens: int, skip_special_tokens: bool
) -> tuple[OffsetText, ...]:
    """The same for prompts to be echoed: a text as it is, ids as the text that they stand for."""

    def work(check: Check) -> tuple[OffsetText, ...]:
        for prompt in prompts:
            if isinstance(prompt, str):
                _check_text(model, prompt, most_tokens, "prompt")
            elif len(prompt) > most_tokens:
                what = f"your prompt has {len(prompt)} tokens"
                raise context_exceeded(model.info.max_model_len, what, "prompt")
        placed = tuple(
            model.tokenizer.encode_with_offsets(prompt)
            if isinstance(prompt, str)
            else model.tokenizer.decode_with_offsets(prompt, skip_special_tokens)
            for prompt in checked(prompts, check)
        )
        for each in placed:
            _require_tokens(each.token_ids, "prompt")
        return placed

    return await run_long(work, sum(map(_num_bytes, prompts)))


async def encode_inputs(model: ServedEmbedder, inputs: Sequence[Prompt]) -> tuple[TokenIds, ...]:
    """The ids of each text to embed; token ids as they are. A checkpoint if the texts are long.

    Raises RequestError, which names the input.
    """
    most = model.info.max_model_len
    names = ["input"] if len(inputs) == 1 else [f"input[{i}]" for i in range(len(inputs))]

    def work(check: Check) -> tuple[TokenIds, ...]:
        texts = [model.prompt + each if isinstance(each, str) else each for each in inputs]
        for text, name in zip(texts, names, strict=True):
            if isinstance(text, str):
                _check_text(model, text, most, name)
            elif len(text) > most:
                raise context_exceeded(most, f"your prompt has {len(text)} tokens", name)
        encoded = []
        for text, name in checked(zip(texts, names, strict=True), check):
            ids = tuple(model.tokenizer.encode(text)) if isinstance(text, str) else text
            if not ids:
                # Not every text has tokens: some vocabularies lack control characters.
                raise invalid(f"{name} cannot be empty", name)
            if len(ids) > most:
                raise context_exceeded(most, f"your prompt has {len(ids)} tokens", name)
            encoded.append(ids)
        return tuple(encoded)

    return await run_long(work, sum(_num_bytes(each) for each in inputs if isinstance(each, str)))


async def encode_messages(
    model: ServedModel,
    messages: Sequence[Mapping[str, Any]],
    most_tokens: int,
    *,
    continues_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] = NO_VARIABLES,
) -> TokenIds:
    """The ids of a conversation. A checkpoint if it is long.

    Raises RequestError, ChatTemplateError or ChatTemplateMissing.
    """

    def work(_: Check) -> TokenIds:
        text = model.tokenizer.render_chat(
            messages,
            continues_final_message=continues_final_message,
            tools=tools,
            variables=variables,
        )
        _check_text(model, text, most_tokens, "messages")
        # The template writes every special token itself, BOS included.
        token_ids = model.tokenizer.encode(text, add_special_tokens=False)
        return _require_tokens(tuple(token_ids), "messages")

    num_bytes = sum(map(_num_bytes, _texts(messages)))
    num_bytes += sum(json_size(each) for each in (variables, *tools) if each)
    return await run_long(work, num_bytes)


def checked(values: Iterable[T], check: Check) -> Iterator[T]:
    """The values, with a check before each."""
    for value in values:
        check()
        yield value


async def run_long(
    work: Callable[[Check], T], num_bytes: int, limiter: trio.CapacityLimiter = _tokenizing
) -> T:
    """The result of `work`, off the event loop if its texts are long. A checkpoint then.

    Abandoned when the client leaves: it touches nothing but the texts. It holds its place in the
    limiter until it comes to its next check.
    """
    if num_bytes <= LONG_TEXT_BYTES:
        return work(lambda: None)
    return await trio.to_thread.run_sync(
        work, trio.from_thread.check_cancelled, limiter=limiter, abandon_on_cancel=True
    )


def check_variables(variables: Mapping[str, Any]) -> None:
    """Raise RequestError if a client's variables would hide what a template is given anyhow."""
    for name in variables:
        if name in RESERVED_VARIABLES:
            raise invalid(f"chat_template_kwargs cannot set {name}", "chat_template_kwargs")


def json_size(value: Any) -> int:
    """Bytes of JSON, as a measure of the work that a client's object makes."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        # It was read from JSON, so this can only mean that it is nested deeper than orjson writes,
        # which is less deep than it reads.
        return LONG_TEXT_BYTES + 1


def context_exceeded(max_model_len: int, what: str, param: str) -> RequestError:
    """The refusal of a request that the model's context does not hold."""
    return RequestError(
        f"This model's maximum context length is {max_model_len} tokens. However, {what}.",
        param=param,
        code="context_length_exceeded",
    )


def _check_text(
    model: ServedModel | ServedEmbedder, text: str, most_tokens: int, param: str
) -> None:
    least = model.tokenizer.least_tokens(text)
    if least > most_tokens:
        what = f"your prompt has at least {least} tokens"
        raise context_exceeded(model.info.max_model_len, what, param)


def _require_tokens(token_ids: TokenIds, param: str) -> TokenIds:
    if not token_ids:
        # Not every text has tokens: some vocabularies lack control characters.
        raise invalid("Prompt cannot be empty", param)
    return token_ids


def _num_bytes(prompt: Prompt) -> int:
    return len(prompt.encode()) if isinstance(prompt, str) else len(prompt) * _BYTES_A_TOKEN


def _texts(messages: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for message in messages:
        for value in message.values():
            if isinstance(value, str):
                yield value
            elif value is not None:
                for each in value:  # parts of the content, or calls
                    yield each["text"] if "text" in each else each["function"]["arguments"]
