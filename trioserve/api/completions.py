"""`POST /v1/completions`."""

from attrs import frozen
from quart import Response

from trioserve.api.body import read_body
from trioserve.api.completion_shape import CompletionShape
from trioserve.api.errors import invalid
from trioserve.api.generation import (
    Limit,
    check_limit,
    generate_request,
    limit_of,
    open_generation,
)
from trioserve.api.logprobs import CompletionLogprobs
from trioserve.api.model_names import find_model, generating_model, shown_name
from trioserve.api.prompts import encode_prompts, encode_with_offsets
from trioserve.api.replies import respond
from trioserve.api.schema.completions import (
    DEFAULT_MAX_TOKENS,
    CompletionBody,
    parse_completion,
)
from trioserve.api.schema.declare import check_limits
from trioserve.api.schema.limits import limits_of
from trioserve.api.schema.rules import check_rules
from trioserve.api.schema.tokens import TokenIds
from trioserve.api.structured import structured
from trioserve.core import ReadoutParams
from trioserve.engine.engine import Engine
from trioserve.engine.served import ServedModel
from trioserve.text.fill_in_middle import FillInMiddle
from trioserve.text.token_offsets import OffsetText


@frozen
class _Prompts:
    """The prompts as the model reads them, and as the client gets them back."""

    token_ids: tuple[TokenIds, ...]
    echoed: tuple[OffsetText, ...] = ()
    """One a prompt, if they are to be echoed."""


async def complete(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body = await read_body(parse_completion, engine.check_serving)
    model, config = generating_model(engine, body.model), engine.config
    check_limits(body, limits_of(config, model.info.vocab_size))
    named = find_model(engine, body.model, is_generation=True)
    check_rules(body)
    fill_in_middle = _fill_in_middle(model, body)
    limit = limit_of(body, DEFAULT_MAX_TOKENS)
    check_limit(body, limit, model)
    engine.check_queue()
    prompts = await _encode(model, body, limit, fill_in_middle)
    readout = _readout(body)
    request = generate_request(engine, body, prompts.token_ids, limit, readout, "cmpl")
    request = await structured(engine, request, body)
    stream = await open_generation(engine, request)
    shape = CompletionShape(
        num_samples=body.n,
        echoed=prompts.echoed,
        # A suffix that the model has read is not written again.
        suffix="" if fill_in_middle else body.suffix or "",
        logprobs=(
            None if body.logprobs is None else CompletionLogprobs(model.tokenizer, body.logprobs)
        ),
        has_hidden_states=body.return_hidden_states,
    )
    return await respond(stream, body, shape, shown_name(body.model, named), config)


def _fill_in_middle(model: ServedModel, body: CompletionBody) -> FillInMiddle | None:
    """The template that makes one prompt of prompt and suffix, where both the server has one and
    the client a suffix. Raises RequestError if it cannot be used."""
    template = model.tokenizer.fill_in_middle
    if template is None or not body.suffix:
        return None
    if not all(isinstance(prompt, str) for prompt in body.prompt):
        raise invalid("suffix requires a text prompt", "suffix")
    return template


def _readout(body: CompletionBody) -> ReadoutParams:
    # Candidates are ranked by their logprobs, whether or not the client sees them.
    is_ranked = body.num_samples > body.n
    num_top = body.logprobs if body.logprobs is not None or not is_ranked else 0
    return ReadoutParams(
        num_top=num_top,
        prompt_from=0 if body.echo and body.logprobs is not None else None,
        has_hidden_state=body.return_hidden_states,
    )


async def _encode(
    model: ServedModel, body: CompletionBody, limit: Limit, template: FillInMiddle | None
) -> _Prompts:
    suffix = body.suffix or ""
    texts = [
        template.join(prompt, suffix) if template and isinstance(prompt, str) else prompt
        for prompt in body.prompt
    ]
    most_tokens = limit.most_prompt_tokens(model.info.max_model_len)
    if not body.echo:
        return _Prompts(await encode_prompts(model, texts, most_tokens))
    read = await encode_with_offsets(model, texts, most_tokens, body.skip_special_tokens)
    echoed = read
    if template is not None:
        # The client gets back what it sent, not what the template made of it.
        echoed = tuple(
            placed.part(len(template.before), len(prompt))
            for placed, prompt in zip(read, body.prompt, strict=True)
        )
    return _Prompts(tuple(placed.token_ids for placed in read), echoed)
