"""Walks through a grammar as a model takes them: one token after the other, each allowed."""

from collections.abc import Callable
from random import Random

import numpy as np
from attrs import frozen

from trioserve.grammar.compilation import compile_constraint, new_compiler
from trioserve.grammar.compiled import CompiledGrammar
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.state import GrammarState
from trioserve.grammar.vocabulary import Vocabulary
from trioserve.testing.adversary import ending_token, worst_token
from trioserve.testing.fake_text import EOS_ID

BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), EOS_ID + 1, (EOS_ID,))
"""The fake model's: a token for each byte."""

Choose = Callable[[list[int], int], int]
"""One of the allowed tokens, and how many came before it."""

_compiler = new_compiler(BYTES)


def compiled(constraint: Constraint, max_spaces: int = 1) -> CompiledGrammar:
    """Raises GrammarError."""
    return CompiledGrammar.of(compile_constraint(_compiler, BYTES, constraint, max_spaces), BYTES)


def for_schema(schema: str) -> CompiledGrammar:
    """Raises GrammarError."""
    return compiled(Constraint(GrammarKind.JSON_SCHEMA, schema))


@frozen
class Walk:
    """Where a walk has come to."""

    text: bytes
    is_finished: bool


def walk(grammar: CompiledGrammar, choose: Choose, most: int = 400) -> Walk:
    """To the end of a text, or `most` tokens."""
    state = GrammarState(grammar, frozenset({EOS_ID}))
    text = bytearray()
    if state.is_finished:
        return Walk(b"", True)
    while len(text) < most:
        token_id = choose(allowed(state), len(text))
        if token_id == EOS_ID:
            return Walk(bytes(text), True)
        state.accept(token_id)
        text.append(token_id)
        if state.is_finished:
            return Walk(bytes(text), True)
    return Walk(bytes(text), False)


def allowed(state: GrammarState) -> list[int]:
    """Tokens that may come next; never none."""
    bits = np.unpackbits(np.frombuffer(state.allowed(), np.uint8), bitorder="little")
    token_ids: list[int] = np.flatnonzero(bits).tolist()
    assert token_ids, "a dead end"
    return token_ids


def at_random(seed: int, num_free: int) -> Choose:
    """Anything for so many tokens, then to an end."""
    random = Random(seed)

    def choose(token_ids: list[int], num_before: int) -> int:
        if num_before == 0:
            random.seed(seed)  # each walk is the same, whichever came before it
        is_free = num_before < num_free
        return random.choice(token_ids) if is_free else ending_token(token_ids, random)

    return choose


def worst(num_free: int, seed: int = 0) -> Choose:
    """An adversary for so many tokens, then to an end."""
    random = Random(seed)

    def choose(token_ids: list[int], num_before: int) -> int:
        if num_before == 0:
            random.seed(seed)
        pick = worst_token if num_before < num_free else ending_token
        return pick(token_ids, random)

    return choose
