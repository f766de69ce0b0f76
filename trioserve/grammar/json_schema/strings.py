"""Rules for strings, as JSON writes them."""

from trioserve.grammar.json_schema.formats import PATTERNS
from trioserve.grammar.json_schema.nodes import Strings
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.automaton import Automaton, automaton_of, both, other_than
from trioserve.grammar.regular.charset import CharSet
from trioserve.grammar.regular.pattern import parse_pattern
from trioserve.grammar.regular.tree import Chars, Repeat, Tree, lengths
from trioserve.grammar.rules import Rules

_CONTROLS: CharSet = ((0, 0x1F),)
_ESCAPED = charset.charset([*_CONTROLS, *charset.of_chars('"\\')])
_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
PLAIN = charset.complement(_ESCAPED)

# A pair of escapes for what lies beyond U+FFFF: one of the two alone is no character.
_HEX = "[0-9A-Fa-f]"
TEXT_RULES = {
    "text": r'"\"" text_rest',
    # What follows a string is said, so that a token that runs beyond its end can be judged when the
    # grammar is compiled, and not each time that a mask is filled.
    "text_rest": f'("\\"" | {charset.write(PLAIN)} text_rest | "\\\\" ["\\\\/bfnrt] text_rest | '
    '"\\\\u" code text_rest) (= ws [,}\\]:])',
    "code": f"[0-9A-CE-Fa-ce-f] {_HEX}{{3}} | [Dd] [0-7] {_HEX}{{2}} | "
    f'[Dd] [89ABab] {_HEX}{{2}} "\\\\u" [Dd] [C-Fc-f] {_HEX}{{2}}',
}
"""Any string."""
QUOTE = '"\\""'


def json_chars(chars: CharSet) -> str:
    """One character of a set inside a string. Few are escaped if there are many others."""
    plain = charset.intersect(chars, PLAIN)
    escaped = [
        chr(code)
        for first, last in charset.intersect(chars, _ESCAPED)
        for code in range(first, last + 1)
    ]
    options = [charset.write(plain)] if plain else []
    if short := "".join(_SHORT[char] for char in escaped if char in _SHORT):
        options.append(f'("\\\\" {charset.write(charset.of_chars(short))})')
    if not plain:
        options += [f'"\\\\u{ord(char):04x}"' for char in escaped if char not in _SHORT]
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def write_strings(strings: Strings, rules: Rules) -> str | None:
    """An expression for them, quotes included; None if there is none. Raises GrammarError."""
    if strings == Strings(said=strings.said):
        return "text"
    tree = _tree_of(strings)
    if tree is not None:
        return f"({QUOTE} {rules.regular(tree, json_chars, QUOTE)})"
    return write_automaton(automaton_for(strings), rules)


def write_automaton(found: Automaton, rules: Rules) -> str | None:
    """An expression for its texts as strings, quotes included; None if there is none."""
    return None if found.is_empty else f"({QUOTE} {rules.automaton(found, json_chars, QUOTE)})"


def _tree_of(strings: Strings) -> Tree | None:
    """One that says it all, if there is one."""
    trees = trees_of(strings)
    if strings.excluded or len(trees) > 1:
        return None
    if not trees:
        return Repeat(Chars(charset.ANY), strings.low, strings.high)
    shortest, longest = lengths(trees[0])
    is_short_enough = strings.high is None or (longest or 10**9) <= strings.high
    return trees[0] if shortest >= strings.low and is_short_enough else None


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
