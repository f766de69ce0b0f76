"""JSON values as Python has them, compared as JSON schemas compare them."""

import json
from decimal import Decimal
from typing import Any


def canonical(value: Any) -> str:
    """Equal for equal values, and different for others: 1.0 is 1, true is not."""
    return json.dumps(_normal(value), sort_keys=True)


def compact(value: Any) -> str:
    """The one way in which a fixed value is written."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_number(value: Any) -> bool:
    """A JSON number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def decimal(value: int | float) -> Decimal:
    """The number as it was written, or as short as it can be."""
    return Decimal(repr(value))


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, dict):
        return {name: _normal(item) for name, item in value.items()}
    return value
