"""Reads the files that describe a model's tokenizer, and reconciles what they say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


@frozen
class TokenizerFiles:
    """What a model's directory says about its text: read once at start, valid as long as kept."""

    backend: Backend
    named_tokens: Mapping[str, str]  # "eos_token" -> its text, for the names that are set
    eos_token_ids: frozenset[int]  # of the two model configs; the tokenizer's own is named above
    chat_template: str | None
    tool_template: str | None = None
    """One of its own for conversations with tools, which few models have."""

    @classmethod
    def read(cls, directory: Path) -> TokenizerFiles:
        """Raises ConfigError naming the directory or file that cannot be used."""
        config = _read_json(directory / "tokenizer_config.json")
        if (directory / "tokenizer.json").is_file():
            backend = _read_backend(directory / "tokenizer.json")
            named_tokens = _add_special_tokens(backend, config, directory)
        else:
            backend, named_tokens = _convert_with_transformers(directory)
        # Some published files keep the limits of a training run; a prompt is never cut or filled.
        backend.no_truncation()
        backend.no_padding()
        return cls(
            backend=backend,
            named_tokens=named_tokens,
            eos_token_ids=_eos_token_ids(directory),
            chat_template=_chat_template(directory, config),
            tool_template=_named_template(config, "tool_use"),
        )


def _read_json(path: Path) -> dict[str, Any]:
    """An object, or an empty one when there is no such file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"cannot read {path}: it does not hold a JSON object")
    return value


def _read_backend(path: Path) -> Backend:
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"cannot read {path}: {error}") from error


def _convert_with_transformers(directory: Path) -> tuple[Backend, dict[str, str]]:
    """For directories that have a vocabulary in an older form only. Slow: imports transformers."""
    if not directory.is_dir():
        raise ConfigError(f"no such model directory: {directory}")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
        backend: Backend = tokenizer.backend_tokenizer
    except Exception as error:  # anything: files of many formats are tried in there
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"no usable tokenizer in {directory}: {reason}") from error
    return backend, {name: str(text) for name, text in tokenizer.special_tokens_map.items()}


def _add_special_tokens(
    backend: Backend, config: dict[str, Any], directory: Path
) -> dict[str, str]:
    """Makes the backend know every special token that tokenizer.json leaves to the other files.

    tokenizer.json is the truth for how text is split and what is put around it (BOS): as in
    transformers, an `add_bos_token` in the config is older than it and not read.
    """
    listed: dict[str, Any] = config.get("added_tokens_decoder") or {}
    if not listed:
        config = config | _read_json(directory / "special_tokens_map.json")
    in_order = [_added_token(listed[key]) for key in sorted(listed, key=int)]
    known = _added_texts(backend)
    backend.add_tokens([token for token in in_order if token.content not in known])

    named = {name: text for name in _NAMED_TOKENS if (text := _text_of(config.get(name)))}
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    # A mapping gives model-specific tokens a name; only the tokens matter here.
    values = extra.values() if isinstance(extra, dict) else extra
    texts = [*named.values(), *(text for value in values if (text := _text_of(value)))]
    known = _added_texts(backend)
    backend.add_special_tokens(
        [AddedToken(text, special=True) for text in dict.fromkeys(texts) if text not in known]
    )
    return named


def _added_texts(backend: Backend) -> set[str]:
    return {token.content for token in backend.get_added_tokens_decoder().values()}


def _added_token(value: dict[str, Any]) -> AddedToken:
    fields = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(value["content"], **{name: value[name] for name in fields if name in value})


def _text_of(value: Any) -> str | None:
    """A token is written as its text or as an object around it."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _eos_token_ids(directory: Path) -> frozenset[int]:
    config = _read_json(directory / "config.json")
    generation = _read_json(directory / "generation_config.json")
    text_config = config.get("text_config")
    places: Iterable[Any] = (
        config.get("eos_token_id"),
        text_config.get("eos_token_id") if isinstance(text_config, dict) else None,
        generation.get("eos_token_id"),
    )
    ids: set[int] = set()
    for value in places:
        ids.update(
            entry
            for entry in (value if isinstance(value, list) else [value])
            if isinstance(entry, int)
        )
    return frozenset(ids)


def _chat_template(directory: Path, config: dict[str, Any]) -> str | None:
    """The file of its own comes first; a list in the config has one named default."""
    path = directory / "chat_template.jinja"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    template = config.get("chat_template")
    return template if isinstance(template, str) else _named_template(config, "default")


def _named_template(config: dict[str, Any], name: str) -> str | None:
    """From the config's list of templates, if it has one."""
    listed = config.get("chat_template")
    if not isinstance(listed, list):
        return None
    template = {entry.get("name"): entry.get("template") for entry in listed}.get(name)
    return template if isinstance(template, str) else None
