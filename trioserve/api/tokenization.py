"""`POST /tokenize` and `POST /detokenize`: what the model's own tokenizer makes of a text."""

from collections.abc import Callable
from typing import Any

import orjson
import trio
from quart import Response

from trioserve.api.body import read_json_object
from trioserve.api.prompts import LONG_TEXT_BYTES, check_variables, json_size
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

# Apart from the prompts': whoever tokenizes a library must not hold up those who generate.
_tokenizing = trio.CapacityLimiter(1)


async def tokenize(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    data = await read_json_object()
    engine.check_serving()
    body = parse_tokenize(data)
    model = _find_model(engine, body.model)
    check_limits(body, limits_of(engine.config, model.info.vocab_size))
    check_tokenize_rules(body)
    check_variables(body.chat_template_kwargs)
    return await _respond(lambda: _tokenized(model, body), data)


async def detokenize(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    data = await read_json_object()
    engine.check_serving()
    body = parse_detokenize(data)
    model = _find_model(engine, body.model)
    check_limits(body, limits_of(engine.config, model.info.vocab_size))
    return await _respond(lambda: _detokenized(model, body), data)


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


def _tokenized(model: ServedModel | ServedEmbedder, body: TokenizeBody) -> dict[str, Any]:
    """Raises ChatTemplateError or ChatTemplateMissing."""
    tokenizer = model.tokenizer
    max_model_len = model.info.max_model_len
    if body.messages is not None:
        text = tokenizer.render_chat(body.messages, variables=body.chat_template_kwargs)
        tokens = tokenizer.encode(text, add_special_tokens=body.add_special_tokens or False)
        return {"tokens": tokens, "count": len(tokens), "max_model_len": max_model_len}
    assert body.prompt is not None, "check_tokenize_rules lets neither through"
    has_special = body.add_special_tokens is not False
    each = [tokenizer.encode(text, add_special_tokens=has_special) for text in body.prompt.values]
    if body.prompt.is_many:
        return {"tokens": each, "count": list(map(len, each)), "max_model_len": max_model_len}
    return {"tokens": each[0], "count": len(each[0]), "max_model_len": max_model_len}


def _detokenized(model: ServedModel | ServedEmbedder, body: DetokenizeBody) -> dict[str, Any]:
    skips = body.skip_special_tokens
    texts = [model.tokenizer.decode(ids, skips) for ids in body.tokens.values]
    return {"text": texts if body.tokens.is_many else texts[0]}


async def _respond(work: Callable[[], dict[str, Any]], data: dict[str, Any]) -> Response:
    """A long text would hold up streams, so it is for a thread. A checkpoint then."""

    def serialize() -> bytes:
        return orjson.dumps(work())

    if json_size(data) <= LONG_TEXT_BYTES:
        answer = serialize()
    else:
        # Abandoned when the client leaves: it touches nothing but the text, and it holds its place
        # in the limiter until it is done.
        answer = await trio.to_thread.run_sync(
            serialize, limiter=_tokenizing, abandon_on_cancel=True
        )
    return Response(answer, content_type="application/json")
