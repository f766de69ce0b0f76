"""`ServerConfig`: every setting, defined once. `cli.py` makes flags and variables out of it."""

import math
import re
from collections.abc import Callable
from typing import Any

import attrs
from attrs import Attribute, field, frozen

from trioserve.errors import ConfigError

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
PACKAGED_EMBEDDER = "all-MiniLM-L6-v2"
"""An embedding model that comes from a package and needs no network."""

_VISIBLE_ASCII = re.compile(r"[!-~]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._~\[\]:-]+")
"""As browsers write it: in lower case, without path or trailing slash."""

_Validator = Callable[[Any, "Attribute[Any]", Any], None]


def flag_name(attribute: str) -> str:
    """The flag of a setting: `max_queued_requests` is `--max-queued-requests`."""
    return "--" + attribute.replace("_", "-")


def is_secret(attribute: "Attribute[Any]") -> bool:
    """Whether the setting's value may be shown nowhere: no log, no answer, no message."""
    return bool(attribute.metadata["is_secret"])


def _setting(
    default: Any, help_text: str, validator: _Validator | None = None, *, is_secret: bool = False
) -> Any:
    return field(
        default=default,
        validator=validator or [],
        repr=not is_secret,
        metadata={"help": help_text, "is_secret": is_secret},
    )


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
                f"{flag_name(attribute.name)} must be one of {', '.join(choices)}, got {value!r}"
            )

    return check


def _not_empty(
    _config: Any, attribute: "Attribute[Any]", value: tuple[str, ...] | str | None
) -> None:
    if not all((value,) if isinstance(value, str) else value or ()):
        raise ConfigError(f"{flag_name(attribute.name)} must not be empty")


def _key(_config: Any, attribute: "Attribute[Any]", value: tuple[str, ...] | str | None) -> None:
    # Spaces would be legal in a header, but not survive in a variable, which lists keys by them.
    for key in (value,) if isinstance(value, str) else value or ():
        if not _VISIBLE_ASCII.fullmatch(key):
            raise ConfigError(
                f"{flag_name(attribute.name)} must be one or more visible ASCII characters "
                "without spaces"
            )


def _origins(_config: Any, attribute: "Attribute[Any]", origins: tuple[str, ...]) -> None:
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"{flag_name(attribute.name)} must be * or an origin such as "
                f"https://example.com:8443, got {origin!r}"
            )


def _power_of_two(_config: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if value < 1 or value & (value - 1):
        raise ConfigError(f"{flag_name(attribute.name)} must be a power of two, got {value}")


@frozen
class ServerConfig:
    """The settings of one server. Raises ConfigError, naming the flag, for a bad value."""

    host: str = _setting("127.0.0.1", "Address to listen on.", _not_empty)
    port: int = _setting(30000, "Port to listen on; 0 picks a free one.", _in_range(0, 65535))
    model_path: str = _setting(
        DEFAULT_MODEL,
        "Directory (safetensors), GGUF file or hub id of the model; the default comes from a "
        "package and needs no network.",
        _not_empty,
    )
    api_key: tuple[str, ...] = _setting(
        (),
        "Key that clients must send as a bearer token (repeatable; several in the variable are "
        "separated by spaces); default: none is asked for.",
        _key,
        is_secret=True,
    )
    admin_api_key: str | None = _setting(
        None,
        "Key that admin endpoints need instead of --api-key; it opens all others as well.",
        _key,
        is_secret=True,
    )
    served_model_name: tuple[str, ...] = _setting(
        (), "Name that clients use for the model (repeatable); default: the model path.", _not_empty
    )
    is_embedding: bool = _setting(
        False,
        "Serve the model's embeddings and no generation; models made for nothing else need no "
        "flag.",
    )
    embedding_model_path: str | None = _setting(
        None,
        "Directory or hub id of an embedding model to serve beside the chat model; "
        f"{PACKAGED_EMBEDDER} comes from a package and needs no network.",
    )
    embedding_served_model_name: tuple[str, ...] = _setting(
        (),
        "Name that clients use for the embedding model beside the chat model (repeatable); "
        "default: its path.",
        _not_empty,
    )
    allow_any_model: bool = _setting(False, "Serve requests that name a model not served here.")
    dtype: str = _setting(
        "auto", "What the model computes with: auto or float16.", _one_of("auto", "float16")
    )
    chat_template: str | None = _setting(
        None,
        "Chat template in place of the model's own: a Jinja file, or chatml or llama-3.",
        _not_empty,
    )
    completion_template: str | None = _setting(
        None,
        "How a completion's prompt and suffix make one prompt to fill in the middle of: "
        "deepseek_coder, star_coder, qwen_coder, or three tokens BEFORE,MIDDLE,AFTER; default: the "
        "suffix is put behind the completion.",
        _not_empty,
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
    max_logprobs: int = _setting(
        20, "Most likely tokens that a request may ask for at each position.", _in_range(0, 1000)
    )
    max_prompts_per_request: int = _setting(2048, "Most prompts in one request.", _in_range(1))
    cors_allow_origin: tuple[str, ...] = _setting(
        (),
        "Origin whose web pages may use the server, or * for all (repeatable); default: none.",
        _origins,
    )
    sse_ping_interval: float = _setting(
        15.0, "Seconds of silence in a stream before a ping; 0 sends none.", _in_range(0)
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
                f"{self.default_max_tokens!r}"
            )
        self._check_embedding()

    def _check_embedding(self) -> None:
        path, names = self.embedding_model_path, self.embedding_served_model_name
        if path is None:
            if names:
                raise ConfigError("--embedding-served-model-name needs --embedding-model-path")
            return
        if not path:
            raise ConfigError("--embedding-model-path must not be empty")
        if self.is_embedding:
            raise ConfigError(
                "--is-embedding and --embedding-model-path exclude each other: the second names a "
                "model beside a chat model"
            )
        taken = {*self.served_names, self.model_path} & {*self.embedding_names, path}
        if taken:
            raise ConfigError(
                f"two models cannot both be named {min(taken)}; see --served-model-name and "
                "--embedding-served-model-name"
            )

    @property
    def served_names(self) -> tuple[str, ...]:
        """Names under which clients reach the model, the canonical one first."""
        return self.served_model_name or (self.model_path,)

    @property
    def embedding_names(self) -> tuple[str, ...]:
        """Names of the embedding model beside the chat model, the canonical one first, if any."""
        path = self.embedding_model_path
        return self.embedding_served_model_name or ((path,) if path is not None else ())


def settings() -> tuple["Attribute[Any]", ...]:
    """All settings, for whoever turns them into flags or documentation."""
    return attrs.fields(ServerConfig)
