"""`POST /tokenize` and `POST /detokenize`: what the model's own tokenizer makes of a text."""

from collections.abc import Callable
from typing import Any, TypeVar

import orjson
import trio
from quart import Response

from trioserve.api.body import read_body
from trioserve.api.prompts import Check, check_variables, checked, json_size, run_long
from trioserve.api.schema.declare import check_limits
from trioserve.api.schema.limits import limits_of
from trioserve.api.schema.tokenize import (
    DetokenizeBody,
    TokenizeBody,
    check_tokenize_rules,
    parse_detokenize,
    parse_tokenize,
)
from trioserve.engine.engine import Engine
from trioserve.engine.served import ServedEmbedder, ServedModel
from trioserve.errors import ModelNotFound

T = TypeVar("T")

# Apart from the prompts': whoever tokenizes a library must not hold up those who generate.
_tokenizing = trio.CapacityLimiter(1)


async def tokenize(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body, num_bytes = await read_body(_sized(parse_tokenize), engine.check_serving)
    model = _find_model(engine, body.model)
    check_limits(body, limits_of(engine.config, model.info.vocab_size))
    check_tokenize_rules(body)
    check_variables(body.chat_template_kwargs)
    return await _respond(lambda check: _tokenized(model, body, check), num_bytes)


async def detokenize(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body, num_bytes = await read_body(_sized(parse_detokenize), engine.check_serving)
    model = _find_model(engine, body.model)
    check_limits(body, limits_of(engine.config, model.info.vocab_size))
    return await _respond(lambda check: _detokenized(model, body, check), num_bytes)


def _find_model(engine: Engine, name: str | None) -> ServedModel | ServedEmbedder:
    """Raises ModelNotFound."""
    directory = engine.directory
    found = directory.primary
    if name is not None:
        try:
            found = directory.find(name)
        except ModelNotFound:
            if not engine.config.allow_any_model:
                raise
    return engine.batch.model if found.info.is_generation else engine.embedding_batch.model


def _tokenized(
    model: ServedModel | ServedEmbedder, body: TokenizeBody, check: Check
) -> dict[str, Any]:
    """Raises ChatTemplateError or ChatTemplateMissing."""
    tokenizer = model.tokenizer
    max_model_len = model.info.max_model_len
    if body.messages is not None:
        text = tokenizer.render_chat(
            body.messages, tools=body.tools, variables=body.chat_template_kwargs
        )
        tokens = tokenizer.encode(text, add_special_tokens=body.add_special_tokens or False)
        return {"tokens": tokens, "count": len(tokens), "max_model_len": max_model_len}
    assert body.prompt is not None, "check_tokenize_rules lets neither through"
    has_special = body.add_special_tokens is not False
    each = [
        tokenizer.encode(text, add_special_tokens=has_special)
        for text in checked(body.prompt.values, check)
    ]
    if body.prompt.is_many:
        return {"tokens": each, "count": list(map(len, each)), "max_model_len": max_model_len}
    return {"tokens": each[0], "count": len(each[0]), "max_model_len": max_model_len}


def _detokenized(
    model: ServedModel | ServedEmbedder, body: DetokenizeBody, check: Check
) -> dict[str, Any]:
    skips = body.skip_special_tokens
    texts = [model.tokenizer.decode(ids, skips) for ids in checked(body.tokens.values, check)]
    return {"text": texts if body.tokens.is_many else texts[0]}


def _sized(parse: Callable[[dict[str, Any]], T]) -> Callable[[dict[str, Any]], tuple[T, int]]:
    """`parse`, and how large what it was given is."""
    return lambda data: (parse(data), json_size(data))


async def _respond(work: Callable[[Check], dict[str, Any]], num_bytes: int) -> Response:
    """A checkpoint if the texts are long."""

    def serialize(check: Check) -> bytes:
        return orjson.dumps(work(check))

    answer = await run_long(serialize, num_bytes, _tokenizing)
    return Response(answer, content_type="application/json")
