"""`Schema`: a JSON schema as alternatives, place by place; what is refused is refused here."""

from typing import Any

from attrs import evolve

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.json_schema.complement import complement
from trioserve.grammar.json_schema.keywords import OF_TYPE, check_keywords, refused, types_of
from trioserve.grammar.json_schema.meet import (
    MAX_ALTERNATIVES,
    closed,
    is_empty,
    meet_all,
)
from trioserve.grammar.json_schema.nodes import (
    ANYTHING,
    NOTHING,
    Alternative,
    Arrays,
    Key,
    Literals,
    Objects,
    Said,
    everything,
)
from trioserve.grammar.json_schema.references import Place, References, located, shown
from trioserve.grammar.json_schema.typed import arrays_of, numbers_of, objects_of, strings_of

MAX_NODES = 5000


class _RefersToItself(GrammarError):
    """What holds for a place cannot be said without knowing it already."""


class Schema:
    """The `Nodes` of one document. Keys:

    ("at", place)      the schema at a place
    ("all", keys)      all of several at once
    ("not", key)       none of what is valid there
    ("if", name, key)  for objects: without the property `name`, or with it and valid there
    """

    def __init__(self, root: Any) -> None:
        self._references = References(root)
        self._known: dict[Key, list[Alternative]] = {
            ANYTHING: everything(),
            NOTHING: [],
        }
        self._open: set[Key] = set()
        self._judging: set[Key] = set()

    def alternatives(self, key: Key) -> list[Alternative]:
        """What is valid there. Raises GrammarError."""
        if key in self._known:
            return self._known[key]
        if key in self._open:
            raise _RefersToItself("$ref to itself")
        if len(self._known) > MAX_NODES:
            raise GrammarError(TOO_COMPLEX)
        self._open.add(key)
        try:
            found = self._read(key)
        except GrammarError as error:
            raise located(error, key) from error
        finally:
            self._open.discard(key)
        if len(found) > MAX_ALTERNATIVES:
            raise GrammarError(TOO_COMPLEX)
        self._known[key] = found
        return found

    def both(self, *keys: Key) -> Key:
        """What is valid for all of them."""
        parts: set[Key] = set()
        for key in keys:
            parts |= key[1] if key[0] == "all" else {key}
        parts.discard(ANYTHING)
        if NOTHING in parts:
            return NOTHING
        if len(parts) > 1:
            return ("all", frozenset(parts))
        return next(iter(parts), ANYTHING)

    def is_nothing(self, key: Key) -> bool:
        """Whether it is certain that no value is valid there."""
        if key in self._judging or key in self._open:
            return False
        self._judging.add(key)
        try:
            return all(is_empty(self, each) for each in self.alternatives(key))
        except _RefersToItself:
            return False  # it is being read already: nothing is certain yet
        finally:
            self._judging.discard(key)

    def _read(self, key: Key) -> list[Alternative]:
        match key:
            case "at", place:
                return self._read_schema(self._references.at(place), place)
            case "all", keys:
                found = everything()
                # In one order, or a schema could mean one thing today and another tomorrow.
                for each in sorted(keys, key=repr):
                    found = meet_all(self, found, self.alternatives(each))
                return found
            case "not", other:
                return complement(self, other)
            case "if", name, then:
                without = Objects({name: NOTHING}, said=Said.NOTHING)
                present = Objects(required=frozenset({name}), said=Said.NOTHING)
                rest = [each for each in everything() if not isinstance(each, Objects)]
                return [*rest, without, *meet_all(self, [present], self.alternatives(then))]
        raise AssertionError(f"no such node: {key}")

    def _read_schema(self, schema: Any, place: Place) -> list[Alternative]:
        if isinstance(schema, bool):
            return everything() if schema else []
        if not isinstance(schema, dict):
            raise GrammarError(f"a schema must be an object or a boolean at {shown(place)}")
        check_keywords(schema, place)
        found = self._read_types(schema, place)
        for values in self._fixed_values(schema):
            found = meet_all(self, found, [Literals(values)])
        for key in self._conditions(schema, place):
            found = meet_all(self, found, self.alternatives(key))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                arms = [("at", (*place, keyword, str(i))) for i in range(len(schema[keyword]))]
                options = self._any_of(arms) if keyword == "anyOf" else self._one_of(arms, place)
                found = meet_all(self, found, options)
        return self._unevaluated(schema, place, found)

    def _fixed_values(self, schema: dict[str, Any]) -> list[tuple[Any, ...]]:
        values = []
        if "const" in schema:
            values.append((schema["const"],))
        if "enum" in schema:
            values.append(tuple(schema["enum"]))
        return values

    def _conditions(self, schema: dict[str, Any], place: Place) -> list[Key]:
        """What has to hold beside the rest."""
        keys: list[Key] = []
        if "$ref" in schema:
            keys.append(("at", self._references.resolve(schema["$ref"], place)))
        keys += [("at", (*place, "allOf", str(i))) for i in range(len(schema.get("allOf", ())))]
        if "not" in schema:
            keys.append(("not", ("at", (*place, "not"))))
        keys += [
            ("if", name, ("at", (*place, "dependentSchemas", name)))
            for name in schema.get("dependentSchemas", ())
        ]
        for name, needed in schema.get("dependentRequired", {}).items():
            key: Key = ("required", place, name)
            self._known[key] = [
                *(each for each in everything() if not isinstance(each, Objects)),
                Objects(required=frozenset(needed), said=Said.NOTHING),
            ]
            keys.append(("if", name, key))
        if "if" in schema:
            keys += self._if_then_else(schema, place)
        return keys

    def _if_then_else(self, schema: dict[str, Any], place: Place) -> list[Key]:
        condition: Key = ("at", (*place, "if"))
        outcomes = []
        for keyword, when in (("then", condition), ("else", ("not", condition))):
            if not {"then", "else"} & schema.keys():
                return []
            outcome = ("at", (*place, keyword)) if keyword in schema else ANYTHING
            outcomes.append(self.both(when, outcome))
        key: Key = ("if-then-else", place)
        self._known[key] = self._any_of(outcomes)
        return [key]

    def _any_of(self, keys: list[Key]) -> list[Alternative]:
        return [each for key in keys for each in self.alternatives(key)]

    def _one_of(self, arms: list[Key], place: Place) -> list[Alternative]:
        """The arms, each without what is valid for another one."""
        options = []
        for arm in arms:
            others = [other for other in arms if other != arm and self._overlap(arm, other)]
            try:
                alone = self.both(arm, *(("not", other) for other in others))
                options += self.alternatives(alone)
            except GrammarError as error:
                why = f"has options that overlap, and {error.detail}"
                raise refused("oneOf", place, why) from error
        return options

    def _overlap(self, a: Key, b: Key) -> bool:
        """Whether a value may be valid for both."""
        return bool(meet_all(self, self.alternatives(a), self.alternatives(b)))

    def _unevaluated(
        self, schema: dict[str, Any], place: Place, found: list[Alternative]
    ) -> list[Alternative]:
        if "unevaluatedProperties" in schema:
            key = ("at", (*place, "unevaluatedProperties"))
            found = [closed(self, e, key) if isinstance(e, Objects) else e for e in found]
            found = [each for each in found if not is_empty(self, each)]
        if "unevaluatedItems" in schema:
            rest = ("at", (*place, "unevaluatedItems"))
            found = [
                evolve(each, rest=self.both(each.rest, rest), is_rest_stated=True)
                if isinstance(each, Arrays) and not each.is_rest_stated
                else each
                for each in found
            ]
        return found

    def _read_types(self, schema: dict[str, Any], place: Place) -> list[Alternative]:
        types = types_of(schema, place)
        spoken_of = {OF_TYPE[keyword] for keyword in schema if keyword in OF_TYPE}

        def said(kind: str) -> Said | None:
            """None: of another type than the schema wants."""
            if types:
                return Said.HERE if kind in types else None
            if not spoken_of:
                return Said.NOTHING
            return Said.HERE if kind in spoken_of else Said.ELSEWHERE

        found: list[Alternative] = []
        for kind, values in (("null", (None,)), ("boolean", (True, False))):
            if (said_of := said(kind)) is not None:
                found.append(Literals(values, said_of))
        if (said_of := said("number")) is not None:
            found.append(numbers_of(schema, False, said_of, place))
        elif (said_of := said("integer")) is not None:
            found.append(numbers_of(schema, True, said_of, place))
        if (said_of := said("string")) is not None:
            found.append(strings_of(schema, said_of, place))
        if (said_of := said("array")) is not None:
            found.append(arrays_of(schema, said_of, place))
        if (said_of := said("object")) is not None:
            found.append(objects_of(schema, said_of, place))
        return [each for each in found if not is_empty(self, each)]
