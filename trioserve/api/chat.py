"""`POST /v1/chat/completions`."""

from typing import Any

from quart import Response

from trioserve.api.body import read_body
from trioserve.api.chat_shape import ChatShape
from trioserve.api.errors import invalid, quoted
from trioserve.api.forced_calls import force_calls
from trioserve.api.generation import (
    check_limit,
    generate_request,
    limit_of,
    open_generation,
)
from trioserve.api.logprobs import ChatLogprobs
from trioserve.api.model_names import find_model, generating_model, shown_name
from trioserve.api.prompts import check_variables, encode_messages, encode_prompts
from trioserve.api.replies import respond
from trioserve.api.reply_syntax import read_as, reply_syntax
from trioserve.api.schema.chat import ChatBody, parse_chat
from trioserve.api.schema.declare import check_limits
from trioserve.api.schema.limits import limits_of
from trioserve.api.schema.rules import check_rules
from trioserve.api.schema.structured import constraints_of
from trioserve.api.schema.tokens import TokenIds
from trioserve.api.schema.tools import tool_names
from trioserve.api.structured import structured
from trioserve.core import ReadoutParams
from trioserve.engine.engine import Engine
from trioserve.engine.served import ServedModel

NO_REASONING = "none"


async def chat(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body = await read_body(parse_chat, engine.check_serving)
    model, config = generating_model(engine, body.model), engine.config
    check_limits(body, limits_of(config, model.info.vocab_size))
    named = find_model(engine, body.model, is_generation=True)
    check_rules(body)
    _check_template_options(body)
    _check_tool_choice(body)
    limit = limit_of(body, _default_max_tokens(engine, body))
    check_limit(body, limit, model)
    engine.check_queue()
    prompt = await _encode(model, body)
    readout = ReadoutParams(
        num_top=body.top_logprobs if body.logprobs else None,
        has_hidden_state=body.return_hidden_states,
    )
    syntax = reply_syntax(config, model.tokenizer, body, prompt)
    request = generate_request(engine, body, [prompt], limit, readout, "chatcmpl")
    request = await structured(engine, request, body)
    request = await force_calls(engine, request, body)
    request = read_as(request, syntax, model.tokenizer)
    stream = await open_generation(engine, request)
    shape = ChatShape(
        logprobs=ChatLogprobs(model.tokenizer, body.top_logprobs) if body.logprobs else None,
        has_hidden_states=body.return_hidden_states,
        syntax=syntax,
        streams_reasoning=body.stream_reasoning,
    )
    return await respond(stream, body, shape, shown_name(body.model, named), config)


def template_variables(body: ChatBody) -> dict[str, Any]:
    """What the template is given beside the messages; the client's own variables come last."""
    variables: dict[str, Any] = {}
    if body.reasoning_effort is not None:
        variables["reasoning_effort"] = body.reasoning_effort
    if body.reasoning_effort == NO_REASONING:
        # Models differ in what they call it.
        variables |= {"thinking": False, "enable_thinking": False}
    return {**variables, **body.chat_template_kwargs}


def _check_template_options(body: ChatBody) -> None:
    """Raise RequestError for what no template can do."""
    check_variables(body.chat_template_kwargs)
    if body.continue_final_message and (
        body.messages is None or body.messages[-1]["role"] != "assistant"
    ):
        raise invalid(
            "continue_final_message requires the last message to be the assistant's",
            "continue_final_message",
        )


def _check_tool_choice(body: ChatBody) -> None:
    """Raise RequestError for a tool that is not there."""
    name = None if body.active_choice is None else body.active_choice.name
    if name is not None and name not in tool_names(body.tools):
        raise invalid(f"tool '{quoted(name)}' not found in tools", "tool_choice")


async def _encode(model: ServedModel, body: ChatBody) -> TokenIds:
    most_tokens = model.info.max_model_len - 1
    if body.messages is not None:
        return await encode_messages(
            model,
            body.messages,
            most_tokens,
            continues_final_message=body.continue_final_message,
            tools=body.tools if body.active_choice is not None else (),
            variables=template_variables(body),
        )
    assert body.prompt is not None, "check_rules lets neither through"
    (token_ids,) = await encode_prompts(model, [body.prompt], most_tokens)
    return token_ids


def _default_max_tokens(engine: Engine, body: ChatBody) -> int:
    default = engine.config.default_max_tokens
    # A defaulted limit is clamped to what fits, so the context's length stands for all of it. Calls
    # and documents have it too: one that is cut off is of no use.
    is_all = default == "context" or body.active_choice is not None or constraints_of(body)
    return engine.model.info.max_model_len if is_all else int(default)
