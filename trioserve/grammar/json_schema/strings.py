"""Rules for strings, as JSON writes them."""

from trioserve.grammar.json_schema.formats import PATTERNS
from trioserve.grammar.json_schema.nodes import Strings
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.automaton import Automaton, automaton_of, both, other_than
from trioserve.grammar.regular.charset import CharSet
from trioserve.grammar.regular.pattern import parse_pattern
from trioserve.grammar.regular.tree import Chars, Concat, Either, Repeat, Tree
from trioserve.grammar.rules import Rules, repeated

_CONTROLS: CharSet = ((0, 0x1F),)
_ESCAPED = charset.charset([*_CONTROLS, *charset.of_chars('"\\')])
_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
PLAIN = charset.complement(_ESCAPED)

# A pair of escapes for what lies beyond U+FFFF: one of the two alone is no character.
_HEX = "[0-9A-Fa-f]"
_CODE = (
    f"([0-9A-CE-Fa-ce-f] {_HEX}{{3}} | [Dd] [0-7] {_HEX}{{2}} | "
    f'[Dd] [89ABab] {_HEX}{{2}} "\\\\u" [Dd] [C-Fc-f] {_HEX}{{2}})'
)
TEXT_RULES = {
    "text": r'"\"" text_rest',
    # What follows a string is said, so that a token that runs beyond its end can be judged when the
    # grammar is compiled, and not each time that a mask is filled.
    "text_rest": f'("\\"" | {charset.write(PLAIN)} text_rest | "\\\\" escape text_rest) '
    "(= ws [,}\\]:])",
    "escape": f'["\\\\/bfnrt] | "u" {_CODE}',
    "counted_char": f'{charset.write(PLAIN)} | "\\\\" ["\\\\/bfnrt]',
}
"""Any string, and one character of a string whose characters are counted."""


def json_chars(chars: CharSet) -> str:
    """One character of a set inside a string. Few are escaped if there are many others."""
    plain = charset.intersect(chars, PLAIN)
    escaped = charset.intersect(chars, _ESCAPED)
    options = [charset.write(plain)] if plain else []
    for first, last in escaped:
        for code in range(first, last + 1):
            if chr(code) in _SHORT:
                options.append(f'("\\\\" {charset.write(charset.of_chars(_SHORT[chr(code)]))})')
            elif not plain:
                options.append(f'"\\\\u{code:04x}"')
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def write_strings(strings: Strings, rules: Rules) -> str | None:
    """An expression for them, quotes included; None if there is none. Raises GrammarError."""
    trees = trees_of(strings)
    if not trees and not strings.excluded:
        if strings.low == 0 and strings.high is None:
            return "text"
        inner = repeated("counted_char", strings.low, strings.high)
        return f'("\\"" {inner} "\\"")'
    if len(trees) == 1 and not strings.excluded:
        shortest, longest = lengths(trees[0])
        is_long_enough = shortest >= strings.low
        if is_long_enough and (strings.high is None or (longest or 10**9) <= strings.high):
            return f'("\\"" {rules.tree(trees[0], json_chars)} "\\"")'
    found = automaton_for(strings)
    if found.is_empty:
        return None
    return f'("\\"" {rules.automaton(found, json_chars)} "\\"")'


def trees_of(strings: Strings) -> list[Tree]:
    """The patterns and formats."""
    patterns = [*sorted(strings.patterns), *(PATTERNS[each] for each in sorted(strings.formats))]
    return [parse_pattern(pattern, is_search=True) for pattern in patterns]


def automaton_for(strings: Strings) -> Automaton:
    """All of it at once."""
    parts = [automaton_of(tree) for tree in trees_of(strings)]
    if strings.low > 0 or strings.high is not None:
        parts.append(automaton_of(Repeat(Chars(charset.ANY), strings.low, strings.high)))
    if strings.excluded or not parts:
        parts.append(other_than(strings.excluded))
    found = parts[0]
    for part in parts[1:]:
        found = both(found, part)
    return found


def lengths(tree: Tree) -> tuple[int, int | None]:
    """The fewest and the most characters of its texts; None is without limit."""
    match tree:
        case Chars():
            return 1, 1
        case Concat(parts):
            pairs = [lengths(part) for part in parts]
            longest = [high for _, high in pairs]
            most = None if None in longest else sum(high or 0 for high in longest)
            return sum(low for low, _ in pairs), most
        case Either(options):
            pairs = [lengths(option) for option in options]
            longest = [high for _, high in pairs]
            most = None if None in longest else max(high or 0 for high in longest)
            return min(low for low, _ in pairs), most
        case Repeat(part, low, high):
            shortest, longest_part = lengths(part)
            if longest_part == 0:
                return 0, 0
            if high is None or longest_part is None:
                return shortest * low, (0 if high == 0 else None)
            return shortest * low, longest_part * high
