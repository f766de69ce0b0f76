"""Kinds of JSON values: each reads one, with the contract's own words for what is wrong with it,
and describes itself as JSON Schema.

`read` is never given null: an absent or null field has its default. What depends on the server
(its settings, its model's vocabulary) is asked of a value already read, by `check`.
"""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.limits import Limits
from trioserve.errors import RequestError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

JsonSchema = dict[str, Any]


class Kind:
    """One kind of value."""

    def read(self, value: Any, name: str) -> Any:
        """The value in its own form. Raises RequestError, naming the field `name`."""
        raise NotImplementedError

    def check(self, value: Any, name: str, limits: Limits) -> None:
        """Raise RequestError for a value, in its own form, that this server does not take."""

    def json_schema(self, limits: Limits) -> JsonSchema:
        """What `read` and `check` accept, as far as JSON Schema (2020-12) can say it."""
        raise NotImplementedError


def wrong_type(name: str, kind: str) -> RequestError:
    """`name` has another JSON type than it must."""
    return invalid(f"{name} must be {kind}", name, "invalid_type")


@frozen
class Boolean(Kind):
    """true or false; never 0 or "true"."""

    def read(self, value: Any, name: str) -> bool:
        """See Kind."""
        if not isinstance(value, bool):
            raise wrong_type(name, "a boolean")
        return value

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "boolean"}


@frozen
class Integer(Kind):
    """An integer in [low, high], written as `16` or `16.0`.

    `message` says what it must be, and `below` the same for what is under the range, where that
    differs.
    """

    low: int
    high: int | None
    message: str
    below: str | None = None

    def read(self, value: Any, name: str) -> int:
        """See Kind."""
        number = as_int(value, name)
        # The parser rounds integers beyond 64 bits, perhaps into the range.
        is_rounded = isinstance(value, float) and not INT64_MIN < number <= INT64_MAX
        if number < self.low:
            raise invalid(self.below or self.message, name)
        if self.high is not None and (number > self.high or is_rounded):
            raise invalid(self.message, name)
        return number

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        high = {} if self.high is None else {"maximum": self.high}
        return {"type": "integer", "minimum": self.low, **high}


@frozen
class AnyInteger(Kind):
    """An integer, however large."""

    def read(self, value: Any, name: str) -> int:
        """See Kind."""
        return as_int(value, name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "integer"}


@frozen
class NumLogprobs(Kind):
    """How many logprobs to report: from 0 to what the server allows."""

    must: str
    """`logprobs must be …`, before the range."""

    def read(self, value: Any, name: str) -> int:
        """See Kind. The range is the server's."""
        return as_int(value, name)

    def check(self, value: int, name: str, limits: Limits) -> None:
        """See Kind."""
        if not 0 <= value <= limits.max_logprobs:
            raise invalid(f"{self.must} between 0 and {limits.max_logprobs}", name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "integer", "minimum": 0, "maximum": limits.max_logprobs}


@frozen
class Number(Kind):
    """A number in [low, high], or in (low, high] if `is_low_open`.

    JSON has no NaN or infinity, so it is finite. `below` is the message for what is under the
    range, where that differs.
    """

    low: float
    high: float
    message: str
    below: str | None = None
    is_low_open: bool = False

    def read(self, value: Any, name: str) -> float:
        """See Kind."""
        number = as_float(value, name)
        if number < self.low or (self.is_low_open and number == self.low):
            raise invalid(self.below or self.message, name)
        if number > self.high:
            raise invalid(self.message, name)
        return number

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        low = "exclusiveMinimum" if self.is_low_open else "minimum"
        return {"type": "number", low: self.low, "maximum": self.high}


@frozen
class Text(Kind):
    """A string; `empty` is the message for an empty one where it is refused."""

    empty: str | None = None
    max_chars: int | None = None

    def read(self, value: Any, name: str) -> str:
        """See Kind."""
        if not isinstance(value, str):
            raise wrong_type(name, "a string")
        if self.empty is not None and not value:
            raise invalid(self.empty, name)
        if self.max_chars is not None and len(value) > self.max_chars:
            raise invalid(f"{name} must have at most {self.max_chars} characters", name)
        return value

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        least = {} if self.empty is None else {"minLength": 1}
        most = {} if self.max_chars is None else {"maxLength": self.max_chars}
        return {"type": "string", **least, **most}


@frozen
class Choice(Kind):
    """One of a few strings."""

    choices: tuple[str, ...]

    def read(self, value: Any, name: str) -> str:
        """See Kind."""
        if not isinstance(value, str):
            raise wrong_type(name, "a string")
        if value not in self.choices:
            *others, last = self.choices
            raise invalid(f"{name} must be {', '.join(others)} or {last}", name)
        return value

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "string", "enum": list(self.choices)}


@frozen
class OneOrMore(Kind):
    """A string or an array of strings, read as a tuple; an empty array is none."""

    element: Text
    max_items: int
    too_many: str

    def read(self, value: Any, name: str) -> tuple[str, ...]:
        """See Kind."""
        if isinstance(value, str):
            return (self.element.read(value, name),)
        if not isinstance(value, list):
            raise wrong_type(name, "a string or an array")
        for index, element in enumerate(value):
            if not isinstance(element, str):
                raise wrong_type(f"{name}[{index}]", "a string")
        if len(value) > self.max_items:
            raise invalid(self.too_many, name)
        return tuple(self.element.read(element, name) for element in value)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        element = self.element.json_schema(limits)
        array = {"type": "array", "items": element, "maxItems": self.max_items}
        return {"anyOf": [element, array]}


@frozen
class AnyObject(Kind):
    """An object whose members are somebody else's business."""

    def read(self, value: Any, name: str) -> dict[str, Any]:
        """See Kind."""
        if not isinstance(value, dict):
            raise wrong_type(name, "an object")
        return value

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "object"}


@frozen
class Anything(Kind):
    """Any value at all."""

    def read(self, value: Any, name: str) -> Any:
        """See Kind."""
        return value

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {}


def as_int(value: Any, name: str) -> int:
    """An integer, written as `16` or `16.0`."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "an integer")
    return value


def as_float(value: Any, name: str) -> float:
    """A number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number")
    try:
        return float(value)
    except OverflowError:
        raise invalid(f"{name} is too large", name) from None
