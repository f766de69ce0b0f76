"""`compile_constraint`: from a constraint to a compiled grammar, in whatever process this runs."""

import re
from typing import TYPE_CHECKING

from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import GrammarError
from trioserve.grammar.matching import first_tokens
from trioserve.grammar.translate import translate
from trioserve.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    import xgrammar

# `[10:48:46] /project/cpp/grammar_parser.cc:820: ` before what is wrong.
_LOG_PREFIX = re.compile(r"^\[[0-9:]+\] \S+: ")
MAX_DETAIL_CHARS = 500


def new_compiler(vocabulary: Vocabulary) -> "xgrammar.GrammarCompiler":
    """One thread: the cores are for the model."""
    import xgrammar

    return xgrammar.GrammarCompiler(vocabulary.info, max_threads=1, cache_enabled=False)


def compile_constraint(
    compiler: "xgrammar.GrammarCompiler",
    vocabulary: Vocabulary,
    constraint: Constraint,
    max_spaces: int = 1,
) -> "xgrammar.CompiledGrammar":
    """The grammar of what the constraint allows. Raises GrammarError."""
    grammar = translate(constraint, max_spaces)
    try:
        compiled = compiler.compile_grammar(grammar)
    except (RuntimeError, UnicodeDecodeError) as error:
        if constraint.kind is not GrammarKind.EBNF:
            # Ours, so that it is not the client's mistake but still its schema that cannot be used.
            raise GrammarError(f"the grammar made of it failed: {first_line(error)}") from error
        raise GrammarError(first_line(error)) from error
    if not first_tokens(compiled, vocabulary).any():
        raise GrammarError("no text matches it")
    return compiled


def first_line(error: Exception) -> str:
    """What a library says, without where in its source it says so."""
    message = str(error)
    if isinstance(error, UnicodeDecodeError):
        # xgrammar quotes one byte of a character, and its binding cannot read that.
        message = error.object.decode(errors="replace")
    line = _LOG_PREFIX.sub("", message.strip()).split("\n")[0].strip()
    if line.endswith("but got"):  # xgrammar's own way to name the end
        line += " the end"
    shown = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return shown[:MAX_DETAIL_CHARS] or type(error).__name__
