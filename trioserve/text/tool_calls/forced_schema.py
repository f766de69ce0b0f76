"""`forced_schema`: the JSON schema of a reply that has to be calls, for a grammar made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

JsonSchema = dict[str, Any]

_SCHEMA_MAPS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
"""Keywords whose members are schemas under names of the client's own."""

_DATA = frozenset({"const", "enum", "default", "examples"})
_OF_A_DOCUMENT = frozenset({"$schema", "$id"})
"""Said of a whole document alone."""

NO_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
"""Of a tool that declares none."""


def forced_schema(
    tools: Sequence[tuple[str, Mapping[str, Any] | None]], *, max_calls: int | None
) -> JsonSchema:
    """An array of at least one call of `tools`, each a name and the schema of its parameters.

    The form is `json_list`'s. Each tool's schema stands under `$defs` as a root of its own, so
    that references inside it lead where they did.
    """
    definitions: JsonSchema = {}
    calls: list[JsonSchema] = []
    for index, (name, parameters) in enumerate(tools):
        key = f"tool_{index}"
        own = parameters if parameters is not None else NO_PARAMETERS
        own = {name: value for name, value in own.items() if name not in _OF_A_DOCUMENT}
        schema = _Move.of(parameters or {}, f"#/$defs/{key}").moved(own)
        # Arguments are an object in every format, whether or not the schema says so.
        definitions[key] = {"type": "object", **schema}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, "parameters": {"$ref": f"#/$defs/{key}"}},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    most = {} if max_calls is None else {"maxItems": max_calls}
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {"type": "array", "items": items, "minItems": 1, **most, "$defs": definitions}


@frozen
class _Move:
    """A schema that was a document of its own, on its way into another one."""

    root: str
    """Where it will stand, as a reference says it."""
    own_id: str
    anchors: Mapping[str, str]
    """Its named places, as pointers."""

    @classmethod
    def of(cls, schema: Mapping[str, Any], root: str) -> _Move:
        own_id = schema.get("$id")
        return cls(root, own_id if isinstance(own_id, str) else "", dict(_anchors(schema, "")))

    def moved(self, schema: Any) -> Any:
        """A part of it, with references that lead where they did."""
        if isinstance(schema, list):
            return [self.moved(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        moved: JsonSchema = {}
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                moved[key] = self._reference(value)
            elif key in _SCHEMA_MAPS and isinstance(value, dict):
                moved[key] = {name: self.moved(inner) for name, inner in value.items()}
            elif key != "$anchor":
                moved[key] = value if key in _DATA else self.moved(value)
        return moved

    def _reference(self, reference: str) -> str:
        """What leads out of the schema or nowhere is left as it is, to be refused."""
        resource, _, fragment = reference.partition("#")
        if resource not in ("", self.own_id.removesuffix("#")):
            return reference
        if fragment and not fragment.startswith("/"):
            pointer = self.anchors.get(fragment)
            return reference if pointer is None else self.root + pointer
        return self.root + fragment


def _anchors(schema: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, list):
        for index, each in enumerate(schema):
            yield from _anchors(each, f"{pointer}/{index}")
    elif isinstance(schema, dict):
        if isinstance(schema.get("$anchor"), str):
            yield schema["$anchor"], pointer
        for key, value in schema.items():
            if key not in _DATA:
                yield from _anchors(value, f"{pointer}/{_escaped(key)}")


def _escaped(key: str) -> str:
    """As a step of a pointer in a reference."""
    return quote(key.replace("~", "~0").replace("/", "~1"), safe="~")
