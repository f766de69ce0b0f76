"""JSON Schema in a few words, for people."""

from collections.abc import Mapping
from typing import Any

import orjson

Json = Mapping[str, Any]


def resolve(document: Json, schema: Json) -> Json:
    """The schema itself, or the component that it refers to, with its own words about it."""
    if "$ref" not in schema:
        return schema
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return {**document["components"]["schemas"][_name_of(schema)], **own}


def describe_type(schema: Json) -> str:
    """`integer, 1 to 128` or `string or array of strings`; null is left to the reader."""
    if "$ref" in schema:
        return _name_of(schema)
    if "anyOf" in schema:
        kinds = [describe_type(kind) for kind in schema["anyOf"] if kind != {"type": "null"}]
        return " or ".join(dict.fromkeys(kinds)) or "null"
    if "const" in schema:
        return orjson.dumps(schema["const"]).decode()
    if "enum" in schema:
        shown = [orjson.dumps(value).decode() for value in schema["enum"] if value is not None]
        return " or ".join(shown)
    if "type" not in schema:
        return "anything"
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    shown = [_describe_one(kind, schema) for kind in types if kind != "null"]
    return " or ".join(shown) or "null"


def _name_of(schema: Json) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _describe_one(kind: str, schema: Json) -> str:
    match kind:
        case "array":
            return _describe_array(schema)
        case "integer" | "number":
            bounds = _bounds(schema)
            return f"{kind}, {bounds}" if bounds else kind
        case "string":
            bounds = _sizes(schema, "maxLength", "characters")
            return f"string, {bounds}" if bounds else "string"
        case _:
            return kind


def _describe_array(schema: Json) -> str:
    if schema.get("maxItems") == 0:
        return "empty array"
    element = describe_type(schema.get("items", {}))
    kind, _, bounds = element.partition(", ")
    if kind not in ("string", "integer", "number", "object"):
        shown = f"array of ({element})"
    else:
        shown = f"array of {kind}s ({bounds})" if bounds else f"array of {kind}s"
    most = _sizes(schema, "maxItems", "elements")
    return f"{shown}, {most}" if most else shown


def _bounds(schema: Json) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum")
    if above is not None:
        return f"above {above}, at most {high}"
    if low is None:
        return ""
    return f"at least {low}" if high is None else f"{low} to {high}"


def _sizes(schema: Json, key: str, unit: str) -> str:
    return f"at most {schema[key]} {unit}" if key in schema else ""
