"""`ObjectWriter`: rules for objects, whose properties come in the order of the schema."""

from collections.abc import Callable

from attrs import evolve, frozen

from trioserve.grammar.errors import GrammarError
from trioserve.grammar.json_schema.meet import Nodes, accepts, property_key
from trioserve.grammar.json_schema.nodes import ANYTHING, NOTHING, Key, Objects, Strings
from trioserve.grammar.json_schema.strings import automaton_for, write_automaton
from trioserve.grammar.json_schema.values import compact
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.automaton import Automaton, both, other_than
from trioserve.grammar.rules import Rules, repeated


@frozen
class _Layout:
    """What one object's rules are written from."""

    members: tuple[tuple[str, Key, bool], ...]
    """Name, value, and whether it must be there."""
    other: str | None
    """A rule for a member that is not listed, if there may be any."""
    low: int
    high: int | None

    @property
    def is_counted(self) -> bool:
        num_required = sum(is_required for _, _, is_required in self.members)
        return self.low > num_required or self.high is not None


class ObjectWriter:
    """Part of the schema's writer; `value` names the rule of a place that `has_value`."""

    def __init__(
        self,
        nodes: Nodes,
        rules: Rules,
        value: Callable[[Key], str],
        has_value: Callable[[Key], bool],
    ) -> None:
        self._nodes = nodes
        self._rules = rules
        self._value = value
        self._has_value = has_value

    def write(self, objects: Objects) -> str:
        """An expression for objects of which there is one. Raises GrammarError."""
        if objects == Objects(said=objects.said):
            return "object"
        layout = self._layout(objects)
        names: dict[tuple[int, bool, int], str] = {}
        # From the end: a member's rule names the one of what may follow it.
        return f'("{{" ws {self._after(layout, 0, False, 0, names)})'

    def _layout(self, objects: Objects) -> _Layout:
        names = dict.fromkeys([*objects.properties, *sorted(objects.required)])
        members = []
        for name in names:
            key = property_key(self._nodes, objects, name)
            if self._has_value(key) and accepts(self._nodes, objects.names, name):
                members.append((name, key, name in objects.required))
        # Members that the schema does not name are not wanted, unless it says so.
        is_open = objects.are_others_stated or not members or objects.low > len(members)
        other = self._other(objects, list(names)) if is_open or objects.patterns else None
        low = objects.low
        if other is None and low > len(members):
            raise GrammarError(f"minProperties of {low} cannot be enforced")
        if other is not None and low > len(members) + 1:
            # A name may come twice, and then counts once.
            raise GrammarError(f"minProperties of {low} cannot be enforced")
        return _Layout(tuple(members), other, low, objects.high)

    def _other(self, objects: Objects, listed: list[str]) -> str | None:
        """A rule for a member whose name is not listed; None if there is none."""
        keys = [key for _, key in objects.patterns]
        if keys:
            # Such a name may match several patterns; what is valid for all of them is for each.
            value = self._nodes.both(*keys)
            patterns = frozenset({objects.patterns[0][0]})
        else:
            value, patterns = objects.others, frozenset()
        if value == NOTHING or not self._has_value(value):
            return None
        found = self._name_automaton(Strings(patterns=patterns), objects.names, listed)
        name = "text" if found is None else write_automaton(found, self._rules)
        return None if name is None else self._rules.add(f'{name} ":" ws {self._value(value)}')

    def _name_automaton(self, names: Strings, key: Key, listed: list[str]) -> Automaton | None:
        """Names that are not listed; None: any text, whatever the escapes."""
        if names.patterns == frozenset() and key == ANYTHING and not listed:
            return None
        found = automaton_for(names)
        if key != ANYTHING:
            options = [e for e in self._nodes.alternatives(key) if isinstance(e, Strings)]
            if len(options) != 1:
                raise GrammarError("propertyNames cannot be enforced")
            found = both(found, automaton_for(evolve(options[0])))
        return both(found, other_than(listed)) if listed else found

    def _after(
        self,
        layout: _Layout,
        index: int,
        has_before: bool,
        count: int,
        names: dict[tuple[int, bool, int], str],
    ) -> str:
        """A rule for the members from `index` on and the end of the object."""
        state = (index, has_before, count)
        if state not in names:
            names[state] = self._rules.new_name("o")
            options = self._options(layout, index, has_before, count, names)
            # What leads nowhere is left out by whoever leads here; see `_can_end`.
            self._rules.set(names[state], " | ".join(options))
        return names[state]

    def _options(
        self,
        layout: _Layout,
        index: int,
        has_before: bool,
        count: int,
        names: dict[tuple[int, bool, int], str],
    ) -> list[str]:
        if index == len(layout.members):
            return self._ends(layout, has_before, count)
        name, key, is_required = layout.members[index]
        options = []
        more = count + 1 if layout.is_counted else 0
        if self._can_end(layout, index + 1, count + 1):
            begin = '"," ws ' if has_before else ""
            written = charset.write_text(compact(name) + ":")
            then = self._after(layout, index + 1, True, more, names)
            options.append(f"{begin}{written} ws {self._value(key)} {then}")
        if not is_required and self._can_end(layout, index + 1, count):
            options.append(self._after(layout, index + 1, has_before, count, names))
        return options

    def _ends(self, layout: _Layout, has_before: bool, count: int) -> list[str]:
        close = 'ws "}"' if has_before else '"}"'
        if layout.other is None:
            return [close]
        most = None if layout.high is None else layout.high - count
        # How many others there are is known for one: the next may have the same name.
        is_needed = layout.is_counted and count < layout.low
        if most == 0:
            return [close]
        comma = self._rules.add(f'"," ws {layout.other}')
        if has_before:
            return [f"{repeated(comma, int(is_needed), most)} {close}"]
        rest = repeated(comma, 0, None if most is None else most - 1)
        some = f'{layout.other} {rest} ws "}}"'
        return [some] if is_needed else [some, close]

    def _can_end(self, layout: _Layout, index: int, count: int) -> bool:
        """Whether an object with `count` members before `index` can become as it has to be."""
        if not layout.is_counted:
            return True
        rest = layout.members[index:]
        least = count + sum(is_required for _, _, is_required in rest)
        most = count + len(rest) + (layout.other is not None)
        return most >= layout.low and (layout.high is None or least <= layout.high)
