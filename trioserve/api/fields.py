"""Typed access to the fields of a JSON body, with the API's own words for what is wrong."""

from collections.abc import Mapping
from typing import Any

from trioserve.api.errors import invalid
from trioserve.errors import RequestError

Body = Mapping[str, Any]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def wrong_type(name: str, kind: str) -> RequestError:
    """`name` has another JSON type than it must."""
    return invalid(f"{name} must be {kind}", name, "invalid_type")


def get_bool(body: Body, name: str, default: bool, *, inside: str = "") -> bool:
    """A boolean; null is the default. `inside` names the object that holds it."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(f"{inside}.{name}" if inside else name, "a boolean")
    return value


def get_str(body: Body, name: str) -> str | None:
    """A string or nothing."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, "a string")
    return value


def get_object(body: Body, name: str) -> Body:
    """An object; null is an empty one."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong_type(name, "an object")
    return value


def as_int(value: Any, name: str) -> int:
    """An integer, written as `16` or `16.0`."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "an integer")
    return value


def get_int(
    body: Body, name: str, default: int | None, low: int, high: int | None, message: str
) -> int | None:
    """An integer in [low, high], or from `low` on; `message` says that it must be."""
    value = body.get(name)
    if value is None:
        return default
    number = as_int(value, name)
    # The parser rounds integers beyond 64 bits, perhaps into the range.
    is_rounded = isinstance(value, float) and not INT64_MIN < number <= INT64_MAX
    if number < low or (high is not None and (number > high or is_rounded)):
        raise invalid(message, name)
    return number


def get_number(body: Body, name: str, default: float) -> float:
    """A number. JSON has no NaN or infinity, so it is finite."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number")
    try:
        return float(value)
    except OverflowError:
        raise invalid(f"{name} is too large", name) from None


def get_strings(body: Body, name: str) -> tuple[str, ...]:
    """A string or an array of strings; null is none."""
    value = body.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise wrong_type(name, "a string or an array")
    for index, element in enumerate(value):
        if not isinstance(element, str):
            raise wrong_type(f"{name}[{index}]", "a string")
    return tuple(value)
