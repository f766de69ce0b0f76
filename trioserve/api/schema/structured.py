"""What the output has to be: `response_format`, `json_schema`, `regex` and `ebnf`.

Each is read as a `Constraint`, whose grammar is made when the rest of the request is known to be
right.
"""

from typing import Any

import orjson
from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.declare import param
from trioserve.api.schema.kinds import JsonSchema, Kind, wrong_type
from trioserve.api.schema.limits import Limits
from trioserve.api.schema.unsupported import UnsupportedFields
from trioserve.errors import RequestError
from trioserve.grammar.compiler import MAX_SOURCE_BYTES
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import TOO_COMPLEX

FORMAT_TYPE = "response_format.type must be one of text, json_object, json_schema"
SCHEMA_REQUIRED = "response_format.json_schema.schema is required"
PARAMS = ("response_format", "json_schema", "regex", "ebnf")
ONLY_ONE = f"only one of {', '.join(PARAMS)} can be set"
_FORMAT = "response_format"

FORMAT_DOC = (
    "The form of the output: `text`, `json_object` for one JSON object, or `json_schema` for one "
    "document that is valid for a schema."
)
SCHEMA_DOC = "A JSON schema for the output, as a text or as an object."
REGEX_DOC = "A pattern that the whole output matches."
EBNF_DOC = 'A grammar for the whole output: rules such as `root ::= "yes" | "no"`.'


def not_compiled(param: str, detail: str) -> RequestError:
    """The refusal of a grammar; a response format's is its schema's."""
    name = "json_schema" if param == _FORMAT else param
    return invalid(f"{name} could not be compiled: {detail}", param)


@frozen
class ResponseFormat(Kind):
    """An object with a type. `text`, which asks for nothing, is read as None.

    `is_flat_read`: a schema may stand beside the type, without the object that names it.
    """

    is_flat_read: bool

    def read(self, value: Any, name: str) -> Constraint | None:
        """See Kind."""
        if not isinstance(value, dict):
            raise wrong_type(name, "an object")
        match value.get("type"):
            case "text":
                return None
            case "json_object":
                return Constraint(GrammarKind.JSON_OBJECT)
            case "json_schema":
                return self._read_schema(value, name)
            case "structural_tag":
                message = f"{name}.type structural_tag is not supported by this server version"
                raise invalid(message, name, "unsupported_parameter")
        raise invalid(FORMAT_TYPE, name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind. That a schema can be enforced is more than a schema says."""
        named = {
            "type": "object",
            "properties": {
                "name": {"type": ["string", "null"]},
                "description": {"type": ["string", "null"]},
                "strict": {"type": ["boolean", "null"]},
                "schema": {"type": "object"},
            },
            "required": ["schema"],
        }
        options: list[JsonSchema] = [
            {"properties": {"type": {"enum": ["text", "json_object"]}}},
            {
                "properties": {"type": {"const": "json_schema"}, "json_schema": named},
                "required": ["json_schema"],
            },
        ]
        if self.is_flat_read:
            flat = {
                "type": {"const": "json_schema"},
                "schema": {"type": "object"},
                "json_schema": {"type": "null"},
            }
            options.append({"properties": flat, "required": ["schema"]})
        return {"anyOf": [{"type": "object", "required": ["type"], **each} for each in options]}

    def _read_schema(self, value: dict[str, Any], name: str) -> Constraint:
        inner = value.get("json_schema")
        if inner is None and self.is_flat_read and value.get("schema") is not None:
            inner = {"schema": value["schema"]}
        if inner is None:
            raise invalid(SCHEMA_REQUIRED, name, "missing_required_parameter")
        within = f"{name}.json_schema"
        if not isinstance(inner, dict):
            raise wrong_type(within, "an object")
        for key, types, words in (
            ("name", str, "a string"),
            ("description", str, "a string"),
            ("strict", bool, "a boolean"),
        ):
            if not isinstance(inner.get(key), types | None):
                raise wrong_type(f"{within}.{key}", words)
        if inner.get("schema") is None:
            raise invalid(SCHEMA_REQUIRED, name, "missing_required_parameter")
        if not isinstance(inner["schema"], dict):
            raise wrong_type(f"{within}.schema", "an object")
        return _schema_constraint(inner["schema"], name)


@frozen
class SchemaText(Kind):
    """A JSON schema, as a text or as it is."""

    def read(self, value: Any, name: str) -> Constraint:
        """See Kind."""
        if isinstance(value, dict):
            return _schema_constraint(value, name)
        if not isinstance(value, str):
            raise wrong_type(name, "a string or an object")
        if len(value) > MAX_SOURCE_BYTES:
            raise not_compiled(name, TOO_COMPLEX)
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise invalid(f"{name} is not valid JSON: {error}", name) from error
        return Constraint(GrammarKind.JSON_SCHEMA, value)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind. That it is a schema, and can be enforced, is more than a schema says."""
        return {"anyOf": [{"type": "string"}, {"type": "object"}]}


@frozen
class GrammarText(Kind):
    """The source of a grammar."""

    kind: GrammarKind

    def read(self, value: Any, name: str) -> Constraint:
        """See Kind."""
        if not isinstance(value, str):
            raise wrong_type(name, "a string")
        if not value:
            raise not_compiled(name, "it is empty")
        if len(value) > MAX_SOURCE_BYTES:
            raise not_compiled(name, TOO_COMPLEX)
        return Constraint(self.kind, value)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind. That it compiles is more than a schema says."""
        return {"type": "string", "minLength": 1, "maxLength": MAX_SOURCE_BYTES}


@frozen(kw_only=True)
class StructuredFields(UnsupportedFields):
    """The fields that completions and chat have in common."""

    json_schema: Constraint | None = param(SchemaText(), None, SCHEMA_DOC)
    regex: Constraint | None = param(GrammarText(GrammarKind.REGEX), None, REGEX_DOC)
    ebnf: Constraint | None = param(GrammarText(GrammarKind.EBNF), None, EBNF_DOC)


def constraints_of(body: Any) -> dict[str, Constraint]:
    """What a body asks of its output, by the field that does; `check_rules` lets one through."""
    return {
        name: constraint for name in PARAMS if (constraint := getattr(body, name, None)) is not None
    }


def has_several(body: Any) -> bool:
    """Whether two fields ask for different things."""
    return len(constraints_of(body)) > 1


def _schema_constraint(schema: dict[str, Any], name: str) -> Constraint:
    try:
        source = orjson.dumps(schema).decode()
    except orjson.JSONEncodeError as error:  # it came from JSON, so it is nested too deeply
        raise not_compiled(name, TOO_COMPLEX) from error
    if len(source) > MAX_SOURCE_BYTES:
        raise not_compiled(name, TOO_COMPLEX)
    return Constraint(GrammarKind.JSON_SCHEMA, source)
