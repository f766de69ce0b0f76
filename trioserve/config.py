"""`ServerConfig`: every setting, defined once. `cli.py` makes flags and variables out of it."""

from typing import Any

import attrs
from attrs import Attribute, frozen

from trioserve.errors import ConfigError
from trioserve.setting import in_range, keys, not_empty, one_of, origins, power_of_two, setting

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
PACKAGED_EMBEDDER = "all-MiniLM-L6-v2"
"""An embedding model that comes from a package and needs no network."""


@frozen
class ServerConfig:
    """The settings of one server. Raises ConfigError, naming the flag, for a bad value."""

    host: str = setting("127.0.0.1", "Address to listen on.", not_empty)
    port: int = setting(30000, "Port to listen on; 0 picks a free one.", in_range(0, 65535))
    model_path: str = setting(
        DEFAULT_MODEL,
        "Directory (safetensors), GGUF file or hub id of the model; the default comes from a "
        "package and needs no network.",
        not_empty,
    )
    api_key: tuple[str, ...] = setting(
        (),
        "Key that clients must send as a bearer token (repeatable; several in the variable are "
        "separated by spaces); default: none is asked for.",
        keys,
        is_secret=True,
    )
    admin_api_key: str | None = setting(
        None,
        "Key that admin endpoints need instead of --api-key; it opens all others as well.",
        keys,
        is_secret=True,
    )
    served_model_name: tuple[str, ...] = setting(
        (), "Name that clients use for the model (repeatable); default: the model path.", not_empty
    )
    is_embedding: bool = setting(
        False,
        "Serve the model's embeddings and no generation; models made for nothing else need no "
        "flag.",
    )
    embedding_model_path: str | None = setting(
        None,
        "Directory or hub id of an embedding model to serve beside the chat model; "
        f"{PACKAGED_EMBEDDER} comes from a package and needs no network.",
    )
    embedding_served_model_name: tuple[str, ...] = setting(
        (),
        "Name that clients use for the embedding model beside the chat model (repeatable); "
        "default: its path.",
        not_empty,
    )
    allow_any_model: bool = setting(False, "Serve requests that name a model not served here.")
    dtype: str = setting(
        "auto", "What the model computes with: auto or float16.", one_of("auto", "float16")
    )
    chat_template: str | None = setting(
        None,
        "Chat template in place of the model's own: a Jinja file, or chatml or llama-3.",
        not_empty,
    )
    tool_call_parser: str = setting(
        "auto",
        "How the model writes calls of tools: hermes, qwen25 (or qwen), llama3, mistral or json; "
        "none looks for no calls, auto goes by the chat template.",
        one_of("auto", "none", "hermes", "qwen25", "qwen", "llama3", "mistral", "json"),
    )
    reasoning_parser: str = setting(
        "none",
        "How the model marks what it thinks before it answers: qwen3, deepseek-r1, or none.",
        one_of("none", "qwen3", "deepseek-r1"),
    )
    completion_template: str | None = setting(
        None,
        "How a completion's prompt and suffix make one prompt to fill in the middle of: "
        "deepseek_coder, star_coder, qwen_coder, or three tokens BEFORE,MIDDLE,AFTER; default: the "
        "suffix is put behind the completion.",
        not_empty,
    )
    context_length: int | None = setting(
        None,
        "Most tokens of prompt and output together; default: what the model allows.",
        in_range(1),
    )
    page_size: int = setting(16, "Tokens in a page of the KV pool.", power_of_two)
    max_total_tokens: int | None = setting(
        None, "Tokens that the KV pool holds; default: from free memory.", in_range(1)
    )
    chunked_prefill_size: int | None = setting(
        None,
        "Most prompt tokens computed in one step; default: measured on the device.",
        in_range(1),
    )
    max_running_requests: int | None = setting(
        None, "Most sequences computed at once; default: the engine's limit.", in_range(1, 65_536)
    )
    max_queued_requests: int | None = setting(
        None,
        "Most sequences waiting before requests are refused with 503; default: no limit.",
        in_range(0),
    )
    host_cache_bytes: int = setting(
        0, "Bytes of host memory for prefixes that the KV pool has no room for.", in_range(0)
    )
    cache_storage: str | None = setting(
        None,
        "Directory, of this server alone, that keeps prefixes beyond a restart.",
        not_empty,
    )
    cache_storage_bytes: int = setting(
        10 * 2**30, "Most bytes that --cache-storage may take on disk.", in_range(2**26)
    )
    enable_priority: bool = setting(
        False, "Serve requests with a higher `priority` first; without it that has no effect."
    )
    disable_prefix_cache: bool = setting(
        False,
        "Share nothing that was computed between requests: for measuring, and where not even the "
        "time that a prompt takes may tell of other prompts. A cache_salt parts only some of them.",
    )
    enable_cache_report: bool = setting(
        False,
        "Report in every reply's usage how many prompt tokens were cached; without it only where "
        "a request asks.",
    )
    default_max_tokens: str = setting(
        "16", "Chat replies without a limit: a number of tokens, or `context` for all that fit."
    )
    max_request_bytes: int = setting(
        33_554_432, "Largest request body; larger ones get 413.", in_range(1)
    )
    max_logprobs: int = setting(
        20, "Most likely tokens that a request may ask for at each position.", in_range(0, 1000)
    )
    max_prompts_per_request: int = setting(2048, "Most prompts in one request.", in_range(1))
    cors_allow_origin: tuple[str, ...] = setting(
        (),
        "Origin whose web pages may use the server, or * for all (repeatable); default: none.",
        origins,
    )
    sse_ping_interval: float = setting(
        15.0, "Seconds of silence in a stream before a ping; 0 sends none.", in_range(0)
    )
    stall_timeout: float = setting(
        30.0,
        "Seconds after which a client that takes nothing is aborted.",
        in_range(0, is_low_open=True),
    )
    queue_timeout: float | None = setting(
        None,
        "Seconds a request may wait for its first step before it gets 503; default: no limit.",
        in_range(0, is_low_open=True),
    )
    request_timeout: float | None = setting(
        None,
        "Seconds after which a request ends with finish_reason abort; default: no limit.",
        in_range(0, is_low_open=True),
    )
    grammar_timeout: float = setting(
        10.0,
        "Seconds that one JSON schema, pattern or grammar may take to compile.",
        in_range(0, is_low_open=True),
    )
    grammar_max_spaces: int = setting(
        1, "Spaces in a row between the parts of structured JSON.", in_range(0, 16)
    )
    drain_timeout: float = setting(
        30.0, "Seconds that open requests may go on after SIGTERM.", in_range(0)
    )
    keep_alive_timeout: float = setting(
        75.0, "Seconds an idle connection is kept.", in_range(0, is_low_open=True)
    )
    log_level: str = setting(
        "info", "debug, info, warning or error.", one_of("debug", "info", "warning", "error")
    )

    def __attrs_post_init__(self) -> None:
        is_number = self.default_max_tokens.isdecimal() and int(self.default_max_tokens) >= 1
        if not is_number and self.default_max_tokens != "context":
            raise ConfigError(
                "--default-max-tokens must be a number of at least 1 or `context`, got "
                f"{self.default_max_tokens!r}"
            )
        if self.disable_prefix_cache and (self.cache_storage or self.host_cache_bytes):
            raise ConfigError(
                "--cache-storage and --host-cache-bytes keep what requests share; leave out "
                "--disable-prefix-cache, or them"
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
