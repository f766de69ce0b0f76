"""Declaring a body: a frozen class whose attributes are the fields of a JSON object.

    @frozen(kw_only=True)
    class Body:
        n: int = param(Integer(1, 128, "n must be between 1 and 128"), 1, "Samples a prompt.")

`read_object(Body, {"n": 2})` gives `Body(n=2)`, or raises RequestError for the first attribute that
is wrong; `check_limits` does the same for what depends on the server. `object_schema(Body, limits)`
is all of it as JSON Schema.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import attrs
from attrs import field, frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.kinds import JsonSchema, Kind, wrong_type
from trioserve.api.schema.limits import Limits

T = TypeVar("T")

_KEY = "trioserve.param"

NOT_SERVED = "x-not-served"
"""In a schema, marks a field of which no value has an effect."""


@frozen
class Param:
    """What a field's declaration says beside its type."""

    kind: Kind
    doc: str
    required: str | None
    """The message for a field that is missing; None where there is a default."""
    is_served: bool = True
    """Whether a value may have an effect; the rest is documented apart."""


def param(kind: Kind, default: Any, doc: str, *, is_served: bool = True) -> Any:
    """An optional field; null is the same as leaving it out."""
    return field(default=default, metadata={_KEY: Param(kind, doc, None, is_served)})


def required(kind: Kind, doc: str, message: str) -> Any:
    """A field that must be there, and not null."""
    return field(metadata={_KEY: Param(kind, doc, message)})


def params_of(cls: type) -> dict[str, Param]:
    """The declared fields of a body, by name: what must be there, what is most its own, and what
    has no effect."""
    return {name: declared for name, declared, _ in _fields_of(cls)}


@cache
def _fields_of(cls: type) -> tuple[tuple[str, Param, Any], ...]:
    """Name, declaration and default."""
    own: dict[str, Any] = {}
    for ancestor in cls.__mro__[:-1]:
        for attribute in attrs.fields(ancestor):
            if _KEY in attribute.metadata and not attribute.inherited:
                own.setdefault(attribute.name, attribute)
    declared = [(name, each.metadata[_KEY], each.default) for name, each in own.items()]
    return tuple(sorted(declared, key=lambda each: _rank(each[1])))


def _rank(declared: Param) -> int:
    return 0 if declared.required is not None else 1 if declared.is_served else 2


def read_object(cls: type[T], body: Mapping[str, Any], *, inside: str = "") -> T:
    """The body as an instance of `cls`; fields that are not declared are not looked at.

    `inside` names the object that holds it, for messages. Raises RequestError.
    """
    values = {}
    for name, declared in params_of(cls).items():
        value = body.get(name)
        where = f"{inside}.{name}" if inside else name
        if value is not None:
            values[name] = declared.kind.read(value, where)
        elif declared.required is not None:
            raise invalid(declared.required, where, "missing_required_parameter")
    return cls(**values)


def check_limits(body: Any, limits: Limits) -> None:
    """Raise RequestError for the first field of a body that this server does not take."""
    for name, declared in params_of(type(body)).items():
        value = getattr(body, name)
        if value is not None:
            declared.kind.check(value, name, limits)


def object_schema(cls: type, limits: Limits) -> JsonSchema:
    """The JSON Schema of a body. Fields that are not declared are allowed: they are ignored."""
    properties = {}
    for name, declared, default in _fields_of(cls):
        schema = declared.kind.json_schema(limits)
        if declared.required is None:
            schema = _or_null(schema)
            if isinstance(default, bool | int | float | str):
                schema["default"] = default
        properties[name] = {**schema, "description": declared.doc}
        if not declared.is_served:
            properties[name][NOT_SERVED] = True
    needed = [name for name, declared in params_of(cls).items() if declared.required is not None]
    return {"type": "object", "properties": properties, "required": needed}


@frozen
class ObjectOf(Kind):
    """A nested object with a declaration of its own."""

    cls: type

    def read(self, value: Any, name: str) -> Any:
        """See Kind."""
        if not isinstance(value, dict):
            raise wrong_type(name, "an object")
        return read_object(self.cls, value, inside=name)

    def check(self, value: Any, name: str, limits: Limits) -> None:
        """See Kind."""
        check_limits(value, limits)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return object_schema(self.cls, limits)


def _or_null(schema: JsonSchema) -> JsonSchema:
    if not schema or schema == {"type": "null"}:
        return dict(schema)
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}
