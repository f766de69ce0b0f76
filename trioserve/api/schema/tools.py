"""`tools` and `tool_choice`, checked and brought into the form that templates take."""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid, quoted
from trioserve.api.schema.json_schemas import schema_fault
from trioserve.api.schema.kinds import JsonSchema, Kind, wrong_type
from trioserve.api.schema.limits import Limits
from trioserve.api.schema.unsupported import NOT_BUILT

_CHOICES = ("none", "auto", "required")
_UNBUILT = "allowed_tools"

EMPTY_TOOLS = "tools cannot be empty if tool_choice is set"


@frozen
class ToolChoice:
    """`none`, `auto`, `required`, or the one tool that is named."""

    mode: str
    name: str | None = None

    @property
    def is_forced(self) -> bool:
        """Whether the reply has to be a call."""
        return self.name is not None or self.mode == "required"


@frozen
class Tools(Kind):
    """An array of functions, read into the objects that templates are given."""

    def read(self, value: Any, name: str) -> tuple[dict[str, Any], ...]:
        """See Kind. The error names the tool that is wrong."""
        if not isinstance(value, list):
            raise wrong_type(name, "an array")
        return tuple(_read_tool(tool, f"{name}[{i}]") for i, tool in enumerate(value))

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind. That the parameters are a JSON schema is more than this one says."""
        function = {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "description": {"type": ["string", "null"]},
                "parameters": {
                    "type": ["object", "null"],
                    "description": "A JSON schema of an object; none are taken if left out.",
                },
                "strict": {
                    "type": ["boolean", "null"],
                    "description": "Accepted without effect: a forced call is always strict.",
                },
            },
            "required": ["name"],
        }
        tool = {
            "type": "object",
            "properties": {"type": {"const": "function"}, "function": function},
            "required": ["type", "function"],
        }
        return {"type": "array", "items": tool}


@frozen
class ToolChoiceKind(Kind):
    """Which tool to call, if any."""

    def read(self, value: Any, name: str) -> ToolChoice:
        """See Kind."""
        if isinstance(value, str):
            if value not in _CHOICES:
                raise invalid(f"{name} must be one of {', '.join(_CHOICES)}, or an object", name)
            return ToolChoice(value)
        if not isinstance(value, dict):
            raise wrong_type(name, "a string or an object")
        if value.get("type") == _UNBUILT:
            raise invalid(f"{name} {NOT_BUILT}", name, "unsupported_parameter")
        if value.get("type") != "function":
            raise invalid(f"{name}.type must be function", name)
        return ToolChoice("named", _read_name(value.get("function"), f"{name}.function", name))

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        named = {
            "type": "object",
            "properties": {
                "type": {"const": "function", "description": "Always `function`."},
                "function": {
                    "type": "object",
                    "properties": {
                        "name": {
                            "type": "string",
                            "minLength": 1,
                            "description": "The name of one of `tools`.",
                        }
                    },
                    "required": ["name"],
                    "description": "The function to call.",
                },
            },
            "required": ["type", "function"],
        }
        return {"anyOf": [{"type": "string", "enum": list(_CHOICES)}, named]}


def tool_names(tools: tuple[dict[str, Any], ...]) -> frozenset[str]:
    """The names of tools as they were read."""
    return frozenset(tool["function"]["name"] for tool in tools)


def _read_tool(tool: Any, where: str) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise wrong_type(where, "an object")
    if tool.get("type") != "function":
        raise invalid(f"{where}.type must be function", f"{where}.type")
    function = tool.get("function")
    name = _read_name(function, f"{where}.function", f"{where}.function.name")
    assert isinstance(function, dict), "a function without a name is refused"
    # What the client adds goes to the template too, but for what is said to the server alone.
    others = {key: value for key, value in function.items() if key != "strict"}
    read = {key: value for key, value in others.items() if value is not None} | {"name": name}
    description, strict = function.get("description"), function.get("strict")
    if description is not None and not isinstance(description, str):
        raise wrong_type(f"{where}.function.description", "a string")
    if strict is not None and not isinstance(strict, bool):
        raise wrong_type(f"{where}.function.strict", "a boolean")
    if "parameters" in read:
        _check_parameters(read["parameters"], f"{where}.function.parameters")
    return {"type": "function", "function": read}


def _read_name(function: Any, where: str, param: str) -> str:
    """The function's name; errors are about `param`."""
    if not isinstance(function, dict):
        raise invalid(f"{where} must be an object", param, "invalid_type")
    name = function.get("name")
    if name is None or name == "":
        raise invalid(f"{where}.name is required", param, "missing_required_parameter")
    if not isinstance(name, str):
        raise invalid(f"{where}.name must be a string", param, "invalid_type")
    return name


def _check_parameters(schema: Any, where: str) -> None:
    """Raise RequestError unless this is a JSON schema that an object can fit."""
    if not isinstance(schema, dict):
        raise wrong_type(where, "an object")
    fault = schema_fault(schema)
    if fault is None and schema.get("type", "object") != "object":
        fault = "type must be object"
    if fault is not None:
        raise invalid(f"{where} is not a valid JSON schema: {quoted(fault)}", where)
