"""From what a request asks of its output to the grammar that its choices follow."""

from typing import Any

from attrs import evolve

from trioserve.api.schema.structured import constraints_of, not_compiled
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest
from trioserve.grammar.compiled import CompiledGrammar
from trioserve.grammar.errors import GrammarError


async def structured(engine: Engine, request: GenerateRequest, *bodies: Any) -> GenerateRequest:
    """The request, whose generations have the grammar that their body asks for.

    One body for all generations, or one for each. A checkpoint if a grammar has to be compiled;
    cancelled, nothing is left of that. Raises RequestError.
    """
    compiled = [await compile_for(engine, body) for body in bodies]
    if not any(compiled):
        return request
    grammars = compiled * len(request.generations) if len(compiled) == 1 else compiled
    return evolve(
        request,
        generations=tuple(
            evolve(generation, grammar=grammar)
            for generation, grammar in zip(request.generations, grammars, strict=True)
        ),
    )


async def compile_for(engine: Engine, body: Any) -> CompiledGrammar | None:
    """The grammar that a body's own fields ask for, if any. A checkpoint. Raises RequestError."""
    for name, constraint in constraints_of(body).items():
        try:
            return await engine.grammars.compile(constraint)
        except GrammarError as error:
            raise not_compiled(name, error.detail) from error
    return None
