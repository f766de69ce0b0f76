"""`References`: the places of a schema that `$ref` leads to."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from attrs import define, field

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError

Place = tuple[str, ...]
"""Steps from the root; an array's index is one too."""

_NO_SCHEMAS = ("const", "enum", "default", "examples")


def shown(place: Place) -> str:
    """A place as messages name it."""
    return "/".join(("#", *(step.replace("~", "~0").replace("/", "~1") for step in place)))


@define
class References:
    """All within one document: nothing is fetched."""

    root: Any
    _anchors: dict[str, Place] = field(init=False)
    _id: str = field(init=False, default="")

    def __attrs_post_init__(self) -> None:
        if isinstance(self.root, dict) and isinstance(self.root.get("$id"), str):
            self._id = self.root["$id"].removesuffix("#")
        self._anchors = dict(_anchors(self.root, ()))

    def at(self, place: Place) -> Any:
        """What stands there. Raises KeyError."""
        value = self.root
        for step in place:
            if isinstance(value, list):
                if not step.isdecimal() or int(step) >= len(value):
                    raise KeyError(step)
                value = value[int(step)]
            elif isinstance(value, dict):
                value = value[step]
            else:
                raise KeyError(step)
        return value

    def resolve(self, reference: Any, place: Place) -> Place:
        """Where the `$ref` at `place` leads. Raises GrammarError."""
        if not isinstance(reference, str):
            raise GrammarError(f"$ref at {shown(place)} must be a string")
        resource, _, fragment = reference.partition("#")
        if resource and resource != self._id:
            raise GrammarError(f"$ref at {shown(place)} leads out of the schema")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if fragment not in self._anchors:
                raise GrammarError(f"$ref at {shown(place)} leads to an unknown anchor")
            return self._anchors[fragment]
        steps = fragment.split("/")[1:]
        target = tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)
        try:
            self.at(target)
        except KeyError:
            raise GrammarError(f"$ref at {shown(place)} leads nowhere") from None
        return target


def _anchors(value: Any, place: Place) -> Iterator[tuple[str, Place]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _anchors(item, (*place, str(index)))
    elif isinstance(value, dict):
        if isinstance(value.get("$anchor"), str):
            yield value["$anchor"], place
        for name, item in value.items():
            if name not in _NO_SCHEMAS:
                yield from _anchors(item, (*place, name))


def located(error: GrammarError, key: tuple[Any, ...]) -> GrammarError:
    """The error with the place of a node, unless it names one; see `nodes` for the keys."""
    if key[0] != "at" or " at #" in error.detail or error.detail == TOO_COMPLEX:
        return error
    return type(error)(f"{error.detail} at {shown(key[1])}")
