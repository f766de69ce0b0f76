"""Deterministic automata: for what a tree alone does not say, such as two patterns at once."""

from collections.abc import Iterable
from itertools import pairwise

from attrs import define, field, frozen

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.charset import CharSet
from trioserve.grammar.regular.tree import Chars, Concat, Either, Repeat, Tree, num_places

MAX_STATES = 3000
SMALL = 64
"""Places of a tree that are told apart. For each, all tokens are judged when the grammar is
compiled: with a vocabulary of 50,000 this takes 7 ms, and the outcome 40 kB."""
_MAX_NFA_STATES = 20_000


@frozen
class Automaton:
    """States are numbers, 0 the first; from each, disjoint sets of characters lead to others.

    Every state leads to an end: what is a dead end has been taken out. No text matches if there
    are no states.
    """

    moves: tuple[tuple[tuple[CharSet, int], ...], ...]
    ends: frozenset[int]

    @property
    def is_empty(self) -> bool:
        """Whether no text matches."""
        return not self.moves


@define
class _Nfa:
    """Thompson's construction."""

    steps: list[list[tuple[CharSet | None, int]]] = field(init=False, factory=list)

    def new_state(self) -> int:
        if len(self.steps) >= _MAX_NFA_STATES:
            raise GrammarError(TOO_COMPLEX)
        self.steps.append([])
        return len(self.steps) - 1

    def add(self, tree: Tree, begin: int) -> int:
        """Lead from `begin` through the tree; the state where it ends."""
        match tree:
            case Chars(chars):
                end = self.new_state()
                if chars:
                    self.steps[begin].append((chars, end))
                return end
            case Concat(parts):
                for part in parts:
                    begin = self.add(part, begin)
                return begin
            case Either(options):
                end = self.new_state()
                for option in options:
                    first = self.new_state()
                    self.steps[begin].append((None, first))
                    self.steps[self.add(option, first)].append((None, end))
                return end
            case Repeat(part, low, high):
                for _ in range(low):
                    begin = self.add(part, begin)
                return self._add_rest(part, begin, None if high is None else high - low)

    def _add_rest(self, part: Tree, begin: int, num_more: int | None) -> int:
        end = self.new_state()
        if num_more is None:
            loop = self.new_state()
            self.steps[begin].append((None, loop))
            self.steps[loop].append((None, end))
            self.steps[self.add(part, loop)].append((None, loop))
            return end
        for _ in range(num_more):
            self.steps[begin].append((None, end))
            # Its own state, or a loop inside the part would lead back to what came before it.
            first = self.new_state()
            self.steps[begin].append((None, first))
            begin = self.add(part, first)
        self.steps[begin].append((None, end))
        return end

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        found, todo = set(states), list(states)
        while todo:
            for chars, target in self.steps[todo.pop()]:
                if chars is None and target not in found:
                    found.add(target)
                    todo.append(target)
        return frozenset(found)


def small_automaton(tree: Tree) -> Automaton | None:
    """The tree's, if it is a small one."""
    if num_places(tree) > SMALL:
        return None
    try:
        return automaton_of(tree, SMALL + 1)
    except GrammarError:
        return None


def automaton_of(tree: Tree, max_states: int = MAX_STATES) -> Automaton:
    """Raises GrammarError where it would have too many states."""
    nfa = _Nfa()
    begin = nfa.new_state()
    end = nfa.add(tree, begin)
    first = nfa.closure([begin])
    numbers = {first: 0}
    moves: list[list[tuple[CharSet, int]]] = []
    todo = [first]
    for states in todo:
        steps = [step for state in states for step in nfa.steps[state] if step[0] is not None]
        row = []
        for chars, targets in _partition(steps):
            target = nfa.closure(targets)
            if target not in numbers:
                if len(numbers) >= max_states:
                    raise GrammarError(TOO_COMPLEX)
                numbers[target] = len(numbers)
                todo.append(target)
            row.append((chars, numbers[target]))
        moves.append(row)
    return _trimmed(moves, {number for states, number in numbers.items() if end in states})


def both(a: Automaton, b: Automaton) -> Automaton:
    """Texts that match both."""
    if a.is_empty or b.is_empty:
        return Automaton((), frozenset())
    numbers = {(0, 0): 0}
    moves: list[list[tuple[CharSet, int]]] = []
    todo = [(0, 0)]
    for left, right in todo:
        row = []
        for chars, to_left in a.moves[left]:
            for other_chars, to_right in b.moves[right]:
                shared = charset.intersect(chars, other_chars)
                if not shared:
                    continue
                if (to_left, to_right) not in numbers:
                    if len(numbers) >= MAX_STATES:
                        raise GrammarError(TOO_COMPLEX)
                    numbers[to_left, to_right] = len(numbers)
                    todo.append((to_left, to_right))
                row.append((shared, numbers[to_left, to_right]))
        moves.append(row)
    ends = {n for (left, right), n in numbers.items() if left in a.ends and right in b.ends}
    return _trimmed(moves, ends)


def other_than(texts: Iterable[str]) -> Automaton:
    """All texts but these, as they are written without escapes."""
    states: dict[str, int] = {"": 0}
    excluded = set(texts)
    for text in sorted(excluded):
        for length in range(1, len(text) + 1):
            states.setdefault(text[:length], len(states))
    free = len(states)
    moves: list[list[tuple[CharSet, int]]] = []
    for prefix in states:
        known = [other for other in states if other[:-1] == prefix and len(other) > len(prefix)]
        rest = charset.subtract(charset.ANY, charset.of_chars("".join(o[-1] for o in known)))
        row = [(charset.of_chars(other[-1]), states[other]) for other in known]
        moves.append([*row, (rest, free)])
    moves.append([(charset.ANY, free)])
    ends = {free} | {number for text, number in states.items() if text not in excluded}
    return _trimmed(moves, ends)


def _partition(
    steps: list[tuple[CharSet | None, int]],
) -> list[tuple[CharSet, frozenset[int]]]:
    """Disjoint sets of characters, and where each leads."""
    borders = sorted(
        {
            border
            for chars, _ in steps
            for first, last in chars or ()
            for border in (first, last + 1)
        }
    )
    by_targets: dict[frozenset[int], list[tuple[int, int]]] = {}
    for begin, end in pairwise(borders):
        targets = frozenset(
            target
            for chars, target in steps
            if any(first <= begin <= last for first, last in chars or ())
        )
        if targets:
            by_targets.setdefault(targets, []).append((begin, end - 1))
    return [(charset.charset(ranges), targets) for targets, ranges in by_targets.items()]


def _trimmed(moves: list[list[tuple[CharSet, int]]], ends: set[int]) -> Automaton:
    sources: dict[int, set[int]] = {}
    for state, row in enumerate(moves):
        for _, target in row:
            sources.setdefault(target, set()).add(state)
    alive, todo = set(ends), list(ends)
    while todo:
        for source in sources.get(todo.pop(), ()):
            if source not in alive:
                alive.add(source)
                todo.append(source)
    if 0 not in alive:
        return Automaton((), frozenset())
    numbers = {state: number for number, state in enumerate(sorted(alive))}
    return Automaton(
        tuple(
            tuple((chars, numbers[target]) for chars, target in moves[state] if target in alive)
            for state in sorted(alive)
        ),
        frozenset(numbers[state] for state in ends),
    )
