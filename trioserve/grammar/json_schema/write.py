"""`schema_grammar`: a JSON schema as rules, one for each place that is reached."""

from typing import Any

from trioserve.grammar.errors import GrammarError
from trioserve.grammar.json_schema.inhabited import can_be_written, find_inhabited, is_inhabited
from trioserve.grammar.json_schema.nodes import (
    ANYTHING,
    Alternative,
    Arrays,
    Key,
    Literals,
    Numbers,
    Objects,
    Said,
    Strings,
)
from trioserve.grammar.json_schema.numbers import NUMBER, write_numbers
from trioserve.grammar.json_schema.objects import ObjectWriter
from trioserve.grammar.json_schema.references import located
from trioserve.grammar.json_schema.schema import Schema
from trioserve.grammar.json_schema.strings import TEXT_RULES, write_strings
from trioserve.grammar.json_schema.values import compact
from trioserve.grammar.regular import charset
from trioserve.grammar.rules import Rules, either, repeated

_ANY_RULES = {
    **TEXT_RULES,
    "number": NUMBER,
    "value": 'text | number | "true" | "false" | "null" | list | object',
    "list": '"[" ws ("]" | value ("," ws value)* ws "]")',
    "object": '"{" ws ("}" | member ("," ws member)* ws "}")',
    "member": 'text ":" ws value',
}
"""Rules for any JSON but `ws`; the names that are not `Rules`' own."""


def object_grammar(max_spaces: int) -> str:
    """The grammar of any JSON object."""
    rules = _new_rules(max_spaces)
    return rules.text("object")


def schema_grammar(schema: Any, max_spaces: int) -> str:
    """The grammar of documents that are valid. Raises GrammarError, which names the keyword."""
    return _Writer(Schema(schema), _new_rules(max_spaces)).write()


def _new_rules(max_spaces: int) -> Rules:
    rules = Rules()
    # Wherever JSON has whitespace, and bounded: a weak model could write blanks for ever. Rejected:
    # indentation of a bounded depth. Each of its states takes as much of the compiled grammar as
    # all the rest of a small schema.
    rules.set("ws", repeated("[ ]", 0, max_spaces))
    for name, body in _ANY_RULES.items():
        rules.set(name, body)
    return rules


class _Writer:
    def __init__(self, schema: Schema, rules: Rules) -> None:
        self._schema = schema
        self._rules = rules
        self._names: dict[Key, str] = {}
        self._inhabited: frozenset[Key] = frozenset()
        self._objects = ObjectWriter(schema, rules, self.value, self.has_value)

    def write(self) -> str:
        root: Key = ("at", ())
        self._inhabited = find_inhabited(self._schema, root)
        if root not in self._inhabited:
            raise GrammarError("no value is valid at #")
        return self._rules.text(self.value(root))

    def has_value(self, key: Key) -> bool:
        """Whether anything can be written there."""
        return is_inhabited(self._schema, key, self._inhabited)

    def value(self, key: Key) -> str:
        """The name of the rule for a place that has a value."""
        if key == ANYTHING:
            return "value"
        if key not in self._names:
            # Before its body is written: it may lead back here.
            name = self._names[key] = self._rules.new_name()
            try:
                options = self._options(key)
            except GrammarError as error:
                raise located(error, key) from error
            self._rules.set(name, " | ".join(dict.fromkeys(options)))
        return self._names[key]

    def _options(self, key: Key) -> list[str]:
        options = [
            text
            for each in _spoken_of(self._schema.alternatives(key))
            if can_be_written(self._schema, each, self._inhabited)
            and (text := self._alternative(each)) is not None
        ]
        if not options:
            raise GrammarError("no value is valid")
        return options

    def _alternative(self, alternative: Alternative) -> str | None:
        match alternative:
            case Literals(values):
                texts = dict.fromkeys(compact(value) for value in values)
                return either([charset.write_text(text) for text in texts])
            case Numbers():
                return write_numbers(alternative, self._rules)
            case Strings():
                return write_strings(alternative, self._rules)
            case Arrays():
                return self._array(alternative)
            case Objects():
                return self._objects.write(alternative)

    def _array(self, array: Arrays) -> str:
        if array.rest == ANYTHING and not array.first and array.low == 0 and array.high is None:
            return "list"
        keys, most = list(array.first), array.high
        for index, key in enumerate(keys):
            if not self.has_value(key):
                del keys[index:]
                most = index if most is None else min(most, index)
                break
        # Items that the schema says nothing about behind those that it lists are not wanted.
        is_open = array.is_rest_stated or not array.first or array.low > len(keys)
        if len(keys) == len(array.first) and (not is_open or not self.has_value(array.rest)):
            most = len(keys) if most is None else min(most, len(keys))
        return self._items(keys, array.rest, array.low, most)

    def _items(self, keys: list[Key], rest: Key, low: int, most: int | None) -> str:
        """From the end to the beginning: what may follow each item."""
        then = ""
        if most is None or most > len(keys):
            item = self._rules.add(f'"," ws {self.value(rest)}')
            num_more = None if most is None else most - max(1, len(keys))
            least = max(0, low - max(1, len(keys)))
            then = repeated(item, least, num_more)
            if not keys:
                body = f"{self.value(rest)} {then}"
                return self._bracketed(body, low)
        for index in range(min(len(keys), most or len(keys)) - 1, 0, -1):
            body = f'("," ws {self.value(keys[index])} {then})'
            then = body if index < low else f"{body}?"
            # A rule of its own: nested groups would be as deep as the array is long.
            then = self._rules.add(then)
        if most == 0:
            return '("[" ws "]")'
        return self._bracketed(f"{self.value(keys[0])} {then}", low)

    def _bracketed(self, items: str, low: int) -> str:
        return f'("[" ws {items} ws "]")' if low else f'("[" ws ("]" | {items} ws "]"))'


def _spoken_of(alternatives: list[Alternative]) -> list[Alternative]:
    """Without what is merely left open, where something is spoken of."""
    if any(each.said is Said.HERE for each in alternatives):
        return [each for each in alternatives if each.said is not Said.ELSEWHERE]
    return alternatives
