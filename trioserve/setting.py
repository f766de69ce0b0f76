"""Declaring one setting of `ServerConfig`: its default, its words, and what its value must be."""

import math
import re
from collections.abc import Callable
from typing import Any

from attrs import Attribute, field

from trioserve.errors import ConfigError

_VISIBLE_ASCII = re.compile(r"[!-~]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._~\[\]:-]+")
"""As browsers write it: in lower case, without path or trailing slash."""

Validator = Callable[[Any, "Attribute[Any]", Any], None]
"""Raises ConfigError, naming the flag, for a value that the setting must not have."""


def flag_name(attribute: str) -> str:
    """The flag of a setting: `max_queued_requests` is `--max-queued-requests`."""
    return "--" + attribute.replace("_", "-")


def is_secret(attribute: "Attribute[Any]") -> bool:
    """Whether the setting's value may be shown nowhere: no log, no answer, no message."""
    return bool(attribute.metadata["is_secret"])


def setting(
    default: Any, help_text: str, validator: Validator | None = None, *, is_secret: bool = False
) -> Any:
    """A setting, as a field of the class that holds them all."""
    return field(
        default=default,
        validator=validator or [],
        repr=not is_secret,
        metadata={"help": help_text, "is_secret": is_secret},
    )


def in_range(low: float, high: float | None = None, *, is_low_open: bool = False) -> Validator:
    """A finite number between these, both allowed unless `is_low_open`; or None."""

    def check(_config: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if value is None:
            return
        if not math.isfinite(value):  # NaN is neither low nor high
            raise ConfigError(f"{flag_name(attribute.name)} must be finite, got {value}")
        is_low = value <= low if is_low_open else value < low
        if is_low or (high is not None and value > high):
            bound = f"more than {low}" if is_low_open else f"at least {low}"
            upper = "" if high is None else f" and at most {high}"
            raise ConfigError(f"{flag_name(attribute.name)} must be {bound}{upper}, got {value}")

    return check


def one_of(*choices: str) -> Validator:
    """One of these words."""

    def check(_config: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if value not in choices:
            raise ConfigError(
                f"{flag_name(attribute.name)} must be one of {', '.join(choices)}, got {value!r}"
            )

    return check


def not_empty(
    _config: Any, attribute: "Attribute[Any]", value: tuple[str, ...] | str | None
) -> None:
    """A text, or texts, of at least one character; or None."""
    if not all((value,) if isinstance(value, str) else value or ()):
        raise ConfigError(f"{flag_name(attribute.name)} must not be empty")


def keys(_config: Any, attribute: "Attribute[Any]", value: tuple[str, ...] | str | None) -> None:
    """A key, or keys, that a header and a variable can carry; or None."""
    # Spaces would be legal in a header, but not survive in a variable, which lists keys by them.
    for key in (value,) if isinstance(value, str) else value or ():
        if not _VISIBLE_ASCII.fullmatch(key):
            raise ConfigError(
                f"{flag_name(attribute.name)} must be one or more visible ASCII characters "
                "without spaces"
            )


def origins(_config: Any, attribute: "Attribute[Any]", value: tuple[str, ...]) -> None:
    """Origins of web pages, or `*`."""
    for origin in value:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"{flag_name(attribute.name)} must be * or an origin such as "
                f"https://example.com:8443, got {origin!r}"
            )


def power_of_two(_config: Any, attribute: "Attribute[Any]", value: Any) -> None:
    """1, 2, 4, 8, …"""
    if value < 1 or value & (value - 1):
        raise ConfigError(f"{flag_name(attribute.name)} must be a power of two, got {value}")
