"""`force_calls`: a reply that has to call tools follows a grammar made of their schemas."""

import re

import orjson
from attrs import evolve

from trioserve.api.errors import invalid
from trioserve.api.schema.chat import ChatBody
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import GrammarError
from trioserve.text.tool_calls.forced_schema import forced_schema

_PLACE = re.compile(r"#/\$defs/tool_(\d+)")


async def force_calls(engine: Engine, request: GenerateRequest, body: ChatBody) -> GenerateRequest:
    """The request, held to calls if its `tool_choice` asks for some.

    A checkpoint if a grammar has to be compiled; cancelled, nothing is left of that. Raises
    RequestError for tools whose schemas cannot be enforced.
    """
    choice = body.active_choice
    if choice is None or not choice.is_forced:
        return request
    functions = {
        index: tool["function"]
        for index, tool in enumerate(body.tools)
        if choice.name in (None, tool["function"]["name"])
    }
    tools = [(each["name"], each.get("parameters")) for each in functions.values()]
    is_one = choice.name is not None or not body.parallel_tool_calls
    schema = forced_schema(tools, max_calls=1 if is_one else None)
    try:
        source = orjson.dumps(schema).decode()
        grammar = await engine.grammars.compile(Constraint(GrammarKind.JSON_SCHEMA, source))
    except GrammarError as error:
        detail = _with_places(error.detail, tuple(functions))
        raise invalid(f"tools could not be compiled: {detail}", "tools") from error
    return evolve(
        request,
        generations=tuple(evolve(each, grammar=grammar) for each in request.generations),
    )


def _with_places(detail: str, indices: tuple[int, ...]) -> str:
    """What is wrong, with the places that it names in the schema as places in the request."""
    return _PLACE.sub(lambda at: f"tools[{indices[int(at[1])]}].function.parameters", detail)
