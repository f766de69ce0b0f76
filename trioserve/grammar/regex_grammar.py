"""`regex`: a pattern for the whole output, as rules."""

from trioserve.grammar.regular.pattern import parse_pattern
from trioserve.grammar.rules import Rules, plain_chars


def regex_grammar(pattern: str) -> str:
    """The grammar of the texts that match from start to end. Raises GrammarError."""
    rules = Rules()
    return rules.text(rules.regular(parse_pattern(pattern, is_search=False), plain_chars))
