"""`ServerConfig`: every setting, defined once. `cli.py` makes flags and variables out of it."""

import math
from collections.abc import Callable
from typing import Any

import attrs
from attrs import Attribute, field, frozen

from trioserve.errors import ConfigError

DEFAULT_MODEL = "SmolLM2-135M-Instruct"

_Validator = Callable[[Any, "Attribute[Any]", Any], None]


def flag_name(attribute: str) -> str:
    """The flag of a setting: `max_queued_requests` is `--max-queued-requests`."""
    return "--" + attribute.replace("_", "-")


def _setting(default: Any, help_text: str, validator: _Validator | None = None) -> Any:
    return field(default=default, validator=validator or [], metadata={"help": help_text})


def _in_range(low: float, high: float | None = None, *, is_low_open: bool = False) -> _Validator:
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


def _one_of(*choices: str) -> _Validator:
    def check(_config: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if value not in choices:
            raise ConfigError(
                f"{flag_name(attribute.name)} must be one of {', '.join(choices)}, got {value}"
            )

    return check


def _not_empty(_config: Any, attribute: "Attribute[Any]", names: tuple[str, ...]) -> None:
    if not all(names):
        raise ConfigError(f"{flag_name(attribute.name)} must not be empty")


def _power_of_two(_config: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value < 1 or value & (value - 1):
        raise ConfigError(f"{flag_name(attribute.name)} must be a power of two, got {value}")


@frozen
class ServerConfig:
    """The settings of one server. Raises ConfigError, naming the flag, for a bad value."""

    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(30000, "Port to listen on; 0 picks a free one.", _in_range(0, 65535))
    model_path: str = _setting(
        DEFAULT_MODEL,
        "Directory (safetensors), GGUF file or hub id of the model; the default comes from a "
        "package and needs no network.",
    )
    served_model_name: tuple[str, ...] = _setting(
        (), "Name that clients use for the model (repeatable); default: the model path.", _not_empty
    )
    context_length: int | None = _setting(
        None,
        "Most tokens of prompt and output together; default: what the model allows.",
        _in_range(1),
    )
    page_size: int = _setting(16, "Tokens in a page of the KV pool.", _power_of_two)
    max_total_tokens: int | None = _setting(
        None, "Tokens that the KV pool holds; default: from free memory.", _in_range(1)
    )
    chunked_prefill_size: int | None = _setting(
        None,
        "Most prompt tokens computed in one step; default: measured on the device.",
        _in_range(1),
    )
    max_running_requests: int | None = _setting(
        None, "Most sequences computed at once; default: the engine's limit.", _in_range(1, 65_536)
    )
    max_queued_requests: int | None = _setting(
        None,
        "Most sequences waiting before requests are refused with 503; default: no limit.",
        _in_range(0),
    )
    default_max_tokens: str = _setting(
        "16", "Chat replies without a limit: a number of tokens, or `context` for all that fit."
    )
    max_request_bytes: int = _setting(
        33_554_432, "Largest request body; larger ones get 413.", _in_range(1)
    )
    stall_timeout: float = _setting(
        30.0,
        "Seconds after which a client that takes nothing is aborted.",
        _in_range(0, is_low_open=True),
    )
    queue_timeout: float | None = _setting(
        None,
        "Seconds a request may wait for its first step before it gets 503; default: no limit.",
        _in_range(0, is_low_open=True),
    )
    request_timeout: float | None = _setting(
        None,
        "Seconds after which a request ends with finish_reason abort; default: no limit.",
        _in_range(0, is_low_open=True),
    )
    drain_timeout: float = _setting(
        30.0, "Seconds that open requests may go on after SIGTERM.", _in_range(0)
    )
    keep_alive_timeout: float = _setting(
        75.0, "Seconds an idle connection is kept.", _in_range(0, is_low_open=True)
    )
    log_level: str = _setting(
        "info", "debug, info, warning or error.", _one_of("debug", "info", "warning", "error")
    )

    def __attrs_post_init__(self) -> None:
        is_number = self.default_max_tokens.isdecimal() and int(self.default_max_tokens) >= 1
        if not is_number and self.default_max_tokens != "context":
            raise ConfigError(
                "--default-max-tokens must be a number of at least 1 or `context`, got "
                f"{self.default_max_tokens}"
            )

    @property
    def served_names(self) -> tuple[str, ...]:
        """Names under which clients reach the model, the canonical one first."""
        return self.served_model_name or (self.model_path,)


def settings() -> tuple["Attribute[Any]", ...]:
    """All settings, for whoever turns them into flags or documentation."""
    return attrs.fields(ServerConfig)
