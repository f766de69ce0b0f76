"""A few words to write JSON Schema of answers with."""

from typing import Any

from trioserve.api.schema.kinds import JsonSchema

STRING: JsonSchema = {"type": "string"}
NUMBER: JsonSchema = {"type": "number"}
INTEGER: JsonSchema = {"type": "integer"}
COUNT: JsonSchema = {"type": "integer", "minimum": 0}
BOOLEAN: JsonSchema = {"type": "boolean"}
NULL: JsonSchema = {"type": "null"}
ANYTHING: JsonSchema = {}


def an_object(
    members: dict[str, JsonSchema],
    sometimes: dict[str, JsonSchema] | None = None,
    doc: str | None = None,
) -> JsonSchema:
    """An object with `members`, and perhaps with those in `sometimes`; `doc` describes it."""
    schema: JsonSchema = {
        "type": "object",
        "properties": {**members, **(sometimes or {})},
        "required": list(members),
    }
    return schema if doc is None else {"description": doc, **schema}


def an_array(element: JsonSchema) -> JsonSchema:
    """An array of any length."""
    return {"type": "array", "items": element}


def one_of(*values: Any) -> JsonSchema:
    """One of these values."""
    return {"const": values[0]} if len(values) == 1 else {"enum": list(values)}


def or_null(schema: JsonSchema) -> JsonSchema:
    """The value, or null."""
    return {"anyOf": [schema, NULL]}


def ref(name: str) -> JsonSchema:
    """The component of that name."""
    return {"$ref": f"#/components/schemas/{name}"}


def described(schema: JsonSchema, doc: str) -> JsonSchema:
    """The schema with words about it."""
    return {**schema, "description": doc}
