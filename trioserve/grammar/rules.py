"""`Rules`: a grammar in the making, as the text that xgrammar reads."""

from collections.abc import Callable

from attrs import define, field

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.automaton import Automaton, automaton_of, small_automaton
from trioserve.grammar.regular.charset import CharSet
from trioserve.grammar.regular.tree import Chars, Concat, Either, Repeat, Tree, is_of_one_length

MAX_CHARS = 4_000_000
ROOT = "root"
MAX_STATES = 80
"""Of small automata in one grammar; what is over is written as a tree. Each is a rule, and xgrammar
keeps a list of all its states for every rule."""
_BLOCK = 32
"""Characters that are counted at once where there are many: longer than most tokens."""

WriteChars = Callable[[CharSet], str]
"""How one character of a set is written; a text in parentheses, or a class."""


@define
class Rules:
    """Rules by name. The parts of their bodies are names, literals and what is in parentheses."""

    bodies: dict[str, str] = field(init=False, factory=dict)
    _max_chars: dict[str, int] = field(init=False, factory=dict)
    _num_chars: int = field(init=False, default=0)
    _num_states: int = field(init=False, default=0)
    _regular: dict[tuple[Tree, WriteChars, str], str] = field(init=False, factory=dict)

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

    def add(self, body: str, hint: str = "r", max_chars: int | None = None) -> str:
        """A new rule's name.

        With `max_chars`, it ends after so many characters, as they are written: an escape counts as
        several. Where it cannot, as inside an escape, xgrammar lets it go on until it can.
        """
        name = self.new_name(hint)
        self.set(name, body)
        if max_chars is not None:
            self._max_chars[name] = max_chars
        return name

    def text(self, root: str) -> str:
        """The grammar, whose root is the expression `root`."""
        lines = [f"{name}{self._bound(name)} ::= {body}" for name, body in self.bodies.items()]
        return "\n".join([f"{ROOT} ::= {root}", *lines]) + "\n"

    def _bound(self, name: str) -> str:
        return f"[max_chars={self._max_chars[name]}]" if name in self._max_chars else ""

    def regular(self, tree: Tree, write: WriteChars, after: str = "") -> str:
        """An expression for the texts of a tree, and `after` each.

        An automaton where a small one does. xgrammar judges a token when it compiles only as far as
        it stays inside a rule: a rule for each character, which is what counting them takes, leaves
        the whole vocabulary to be judged whenever a mask is filled, for 10 to 20 ms.
        """
        key = (tree, write, after)
        if key not in self._regular:
            found = self._small_automaton(tree)
            if found is None:
                body = sequence([self._tree(tree, write), *([after] if after else [])])
                self._regular[key] = self.add(body)
            elif found.is_empty:
                raise GrammarError("no text matches the pattern")
            else:
                self._regular[key] = self.automaton(found, write, after)
        return self._regular[key]

    def _small_automaton(self, tree: Tree) -> Automaton | None:
        found = small_automaton(tree)
        if found is None or self._num_states + len(found.moves) > MAX_STATES:
            return None
        self._num_states += len(found.moves)
        return found

    def _tree(self, tree: Tree, write: WriteChars, *, is_alone: bool = True) -> str:
        """`is_alone`: where the tree begins is plain from the text before it."""
        match tree:
            case Chars(chars):
                if not chars:
                    raise GrammarError("a set of characters that is empty")
                return write(chars)
            case Concat(parts):
                is_plain = is_alone and sum(map(is_of_one_length, parts)) >= len(parts) - 1
                return sequence([self._tree(part, write, is_alone=is_plain) for part in parts])
            case Either(options):
                return either([self._tree(each, write, is_alone=is_alone) for each in options])
            case Repeat(part, low, high):
                found = self._small_automaton(tree)
                if found is not None and not found.is_empty:
                    return self.automaton(found, write)
                if isinstance(part, Chars) and is_alone:
                    return self._many_chars(part, low, high, write)
                # A rule of its own: xgrammar counts those, and writes all else once for each time.
                inner = self.add(self._tree(part, write, is_alone=False))
                return repeated(inner, low, high)

    def _many_chars(self, chars: Chars, low: int, high: int | None, write: WriteChars) -> str:
        """More than are told apart: some at a time, and the rest by a bound.

        Only where it is plain when the counting begins: xgrammar follows each count on its own.
        """
        num_blocks, num_more = divmod(low, _BLOCK)
        rest = self.add(f"({self._tree(chars, write)})*") if high != low else ""
        if num_more:
            rest = self.automaton(automaton_of(Repeat(chars, num_more, num_more)), write, rest)
        if num_blocks:
            block = self.automaton(automaton_of(Repeat(chars, _BLOCK, _BLOCK)), write)
            rest = f"{repeated(block, num_blocks, num_blocks)} {rest}"
        # The bound is of the whole: a token that runs into a part with a bound of its own would be
        # taken for allowed, however long it is.
        return self.add(rest or '""', max_chars=high if high != low else None)

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
