"""`translate`: any constraint as the one kind of grammar that is compiled."""

import json
from typing import NoReturn

from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.json_schema.write import object_grammar, schema_grammar
from trioserve.grammar.regex_grammar import regex_grammar


def translate(constraint: Constraint, max_spaces: int = 1) -> str:
    """xgrammar's EBNF for it, with so many spaces in a row where JSON has whitespace.

    Not on the event loop, for some take seconds. Raises GrammarError.
    """
    try:
        match constraint.kind:
            case GrammarKind.JSON_OBJECT:
                return object_grammar(max_spaces)
            case GrammarKind.JSON_SCHEMA:
                schema = json.loads(constraint.source, parse_constant=_no_constant)
                return schema_grammar(schema, max_spaces)
            case GrammarKind.REGEX:
                return regex_grammar(constraint.source)
            case GrammarKind.EBNF:
                return constraint.source
    except RecursionError:
        raise GrammarError(TOO_COMPLEX) from None
    except ArithmeticError as error:
        raise GrammarError("a number is out of range") from error
    except ValueError as error:
        raise GrammarError(f"it is not valid JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
