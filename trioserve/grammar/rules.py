"""`Rules`: a grammar in the making, as the text that xgrammar reads."""

from collections.abc import Callable

from attrs import define, field

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.automaton import Automaton
from trioserve.grammar.regular.charset import CharSet
from trioserve.grammar.regular.tree import Chars, Concat, Either, Repeat, Tree

MAX_CHARS = 4_000_000
ROOT = "root"

WriteChars = Callable[[CharSet], str]
"""How one character of a set is written; a text in parentheses, or a class."""


@define
class Rules:
    """Rules by name. The parts of their bodies are names, literals and what is in parentheses."""

    bodies: dict[str, str] = field(init=False, factory=dict)
    _num_chars: int = field(init=False, default=0)

    def new_name(self, hint: str = "r") -> str:
        """A name that no rule has; `set` must give it one."""
        name = f"{hint}{len(self.bodies)}"
        self.bodies[name] = ""
        return name

    def set(self, name: str, body: str) -> None:
        """What a name stands for. Raises GrammarError if the grammar gets too long."""
        self.bodies[name] = body
        self._num_chars += len(name) + len(body)
        if self._num_chars > MAX_CHARS:
            raise GrammarError(TOO_COMPLEX)

    def add(self, body: str, hint: str = "r") -> str:
        """A new rule's name."""
        name = self.new_name(hint)
        self.set(name, body)
        return name

    def text(self, root: str) -> str:
        """The grammar, whose root is the expression `root`."""
        lines = [f"{name} ::= {body}" for name, body in self.bodies.items()]
        return "\n".join([f"{ROOT} ::= {root}", *lines]) + "\n"

    def tree(self, tree: Tree, write: WriteChars) -> str:
        """An expression for the texts of a tree."""
        match tree:
            case Chars(chars):
                if not chars:
                    raise GrammarError("a set of characters that is empty")
                return write(chars)
            case Concat(parts):
                return sequence([self.tree(part, write) for part in parts])
            case Either(options):
                return either([self.tree(option, write) for option in options])
            case Repeat(part, low, high):
                inner = self.tree(part, write)
                if (low, high) == (1, 1):
                    return inner
                # A rule of its own: xgrammar counts those, and writes a class once for each time.
                return repeated(self.add(inner), low, high)

    def automaton(self, automaton: Automaton, write: WriteChars, after: str = "") -> str:
        """An expression for the texts of an automaton that some text matches, and `after` each."""
        assert not automaton.is_empty, "an automaton of no text"
        names = [self.new_name("s") for _ in automaton.moves]
        for state, row in enumerate(automaton.moves):
            options = [f"{write(chars)} {names[target]}" for chars, target in row]
            if state in automaton.ends:
                options.append(after or '""')
            self.set(names[state], " | ".join(options))
        return names[0]


def sequence(parts: list[str]) -> str:
    """One expression after the other."""
    if not parts:
        return '""'
    return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"


def either(options: list[str]) -> str:
    """One of the expressions, of which there is at least one."""
    assert options, "a choice between nothing"
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def repeated(part: str, low: int, high: int | None) -> str:
    """A name or a class several times."""
    match low, high:
        case 0, None:
            return f"{part}*"
        case 1, None:
            return f"{part}+"
        case _, 0:
            return '""'
        case _, None:
            return f"({part}{{{low}}} {part}*)"
    return f"{part}{{{low},{high}}}"


def plain_chars(chars: CharSet) -> str:
    """Characters of a text that is no JSON."""
    return charset.write(chars)
