"""Each setting as a flag, a variable and a line of a TOML file; generated from the definitions."""

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from trioserve import __version__
from trioserve.cli import EXIT_CONFIG, load_config, main
from trioserve.config import ServerConfig, settings
from trioserve.setting import flag_name, is_secret

VALUES: dict[str, Any] = {
    "host": "::1",
    "port": 8000,
    "model_path": "org/other",
    "api_key": ("key-1", "key-2"),
    "admin_api_key": "root",
    "served_model_name": ("big", "small"),
    "is_embedding": True,
    "embedding_model_path": "org/embedder",
    "embedding_served_model_name": ("vectors", "sentences"),
    "allow_any_model": True,
    "chat_template": "chatml",
    "completion_template": "qwen_coder",
    "tool_call_parser": "hermes",
    "reasoning_parser": "qwen3",
    "dtype": "float16",
    "context_length": 512,
    "page_size": 32,
    "max_total_tokens": 4096,
    "chunked_prefill_size": 64,
    "max_running_requests": 3,
    "max_queued_requests": 0,
    "host_cache_bytes": 1000,
    "cache_storage": "somewhere",
    "cache_storage_bytes": 2**27,
    "enable_priority": True,
    "disable_prefix_cache": True,
    "enable_cache_report": True,
    "default_max_tokens": "context",
    "max_request_bytes": 1000,
    "max_logprobs": 5,
    "max_prompts_per_request": 7,
    "cors_allow_origin": ("https://a.example", "http://localhost:3000"),
    "sse_ping_interval": 0.5,
    "stall_timeout": 1.5,
    "queue_timeout": 2.5,
    "request_timeout": 3.5,
    "grammar_timeout": 7.5,
    "grammar_max_spaces": 0,
    "drain_timeout": 4.5,
    "keep_alive_timeout": 5.5,
    "log_level": "debug",
}
"""A value for each setting that is not its default."""

NEEDED: dict[str, list[str]] = {"embedding_served_model_name": ["--embedding-model-path", "a"]}
"""Flags without which a setting means nothing."""

BAD: dict[str, tuple[str, ...]] = {
    "host": ("",),
    "port": ("-1", "65536", "x", "1.5", ""),
    "model_path": ("",),
    "api_key": ("", "two words", "schlüssel", "tab\tbed", "line\nbreak"),
    "admin_api_key": ("", "two words", "schlüssel"),
    "served_model_name": ("",),
    "embedding_model_path": ("",),
    "embedding_served_model_name": ("",),
    "chat_template": ("",),
    "completion_template": ("",),
    "tool_call_parser": ("hermes3", "", "her\nmes"),
    "reasoning_parser": ("qwen", "auto", ""),
    "dtype": ("bfloat16", ""),
    "context_length": ("0", "-1", "x"),
    "page_size": ("0", "3", "x"),
    "max_total_tokens": ("0", "x"),
    "chunked_prefill_size": ("0", "x"),
    "max_running_requests": ("0", "65537", "x"),
    "max_queued_requests": ("-1", "x"),
    "default_max_tokens": ("0", "-1", "1.5", "a\nb", ""),
    "max_request_bytes": ("0", "x"),
    "max_logprobs": ("-1", "1001", "x"),
    "max_prompts_per_request": ("0", "x"),
    "cors_allow_origin": (
        "",
        "example.com",
        "https://a.example/",
        "https://a b",
        "HTTPS://A",
        "a\nb",
    ),
    "sse_ping_interval": ("-1", "nan", "inf", "x"),
    "stall_timeout": ("0", "-1", "nan", "inf", "x"),
    "queue_timeout": ("0", "nan", "inf", "x"),
    "request_timeout": ("0", "nan", "inf", "x"),
    "grammar_timeout": ("0", "-1", "nan", "inf", "x"),
    "grammar_max_spaces": ("-1", "17", "0.5", "x"),
    "host_cache_bytes": ("-1", "x"),
    "cache_storage": ("",),
    "cache_storage_bytes": ("0", "67108863", "x"),
    "drain_timeout": ("-1", "nan", "inf", "x"),
    "keep_alive_timeout": ("0", "nan", "inf", "x"),
    "log_level": ("loud", "", "lo\nud"),
}
"""Values that each setting refuses; a switch takes none."""

NAMES = tuple(attribute.name for attribute in settings())
SECRETS = tuple(attribute.name for attribute in settings() if is_secret(attribute))
SWITCHES = tuple(attribute.name for attribute in settings() if attribute.type is bool)


def as_flags(name: str, value: Any) -> list[str]:
    if value is True:
        return [flag_name(name)]
    values = value if isinstance(value, tuple) else (value,)
    return [word for each in values for word in (flag_name(name), str(each))]


def as_text(value: Any) -> str:
    """As a variable has it."""
    return " ".join(value) if isinstance(value, tuple) else str(value)


def as_toml(folder: Path, name: str, value: Any) -> list[str]:
    text = repr(list(value)) if isinstance(value, tuple) else repr(value)
    path = folder / "settings.toml"
    path.write_text(f"{name} = {text.lower() if isinstance(value, bool) else text}\n")
    return ["--config", str(path)]


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which `trioserve serve` ends at once."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", *arguments])
    assert ended.value.code == EXIT_CONFIG == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line.removeprefix("trioserve: ")


def test_every_setting_has_values_here() -> None:
    """Or the tests below would pass over it."""
    assert VALUES.keys() == set(NAMES)
    assert BAD.keys() == set(NAMES) - set(SWITCHES)
    for attribute in settings():
        assert VALUES[attribute.name] != attribute.default


@pytest.mark.row("S-G-005")
@pytest.mark.parametrize("name", NAMES)
def test_a_setting_is_a_flag_a_variable_and_a_line_of_toml(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, needed = VALUES[name], NEEDED.get(name, [])
    expected = attrs.evolve(load_config(needed), **{name: value})
    assert load_config([*needed, *as_flags(name, value)]) == expected
    flag, *rest = as_flags(name, value)
    assert load_config([*needed, flag.replace("-", "_").replace("__", "--", 1), *rest]) == expected
    for key in (name, name.replace("_", "-")):
        assert load_config([*needed, *as_toml(tmp_path, key, value)]) == expected
    monkeypatch.setenv(f"TRIOSERVE_{name.upper()}", as_text(value))
    assert load_config(needed) == expected


@pytest.mark.parametrize(
    ("name", "toml", "variable", "flags", "values"),
    [
        ("port", 1, "2", ["--port", "3"], (1, 2, 3)),
        ("log_level", "error", "debug", ["--log-level", "info"], ("error", "debug", "info")),
        ("queue_timeout", 1, "2.5", ["--queue-timeout", "3"], (1.0, 2.5, 3.0)),
        ("api_key", ("a",), "b  c", ["--api-key", "d"], (("a",), ("b", "c"), ("d",))),
        ("allow_any_model", True, "0", ["--allow-any-model"], (True, False, True)),
        ("allow_any_model", False, "yes", ["--no-allow-any-model"], (False, True, False)),
    ],
)
def test_a_flag_wins_over_a_variable_and_a_variable_over_toml(
    name: str,
    toml: Any,
    variable: str,
    flags: list[str],
    values: tuple[Any, Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = as_toml(tmp_path, name, toml)
    assert getattr(load_config(arguments), name) == values[0]
    monkeypatch.setenv(f"TRIOSERVE_{name.upper()}", variable)
    assert getattr(load_config(arguments), name) == values[1]
    assert getattr(load_config([*arguments, *flags]), name) == values[2]


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts]
)
def test_a_bad_value_is_one_line_that_names_the_flag_and_exit_code_2(
    name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal([*NEEDED.get(name, []), flag_name(name), text], capsys)
    assert flag_name(name) in line
    if name in SECRETS and text:
        assert text not in line


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_variable_or_line_of_toml_is_refused_like_the_flag(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = NEEDED.get(name, [])
    # Click has an empty variable count as none, and a list is cut at its spaces.
    text = next((text for text in BAD[name] if text and " " not in text), None)
    if text is not None:
        with monkeypatch.context() as patched:
            patched.setenv(f"TRIOSERVE_{name.upper()}", text)
            assert flag_name(name) in refusal(needed, capsys)
    value = ("",) if isinstance(VALUES[name], tuple) else -1
    line = refusal([*needed, *as_toml(tmp_path, name, value)], capsys)
    assert name in line.replace("-", "_")


@pytest.mark.parametrize("blank", ["", " ", "\t"])
@pytest.mark.parametrize("name", SECRETS)
def test_a_key_variable_without_a_key_opens_nothing(
    name: str, blank: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-e TRIOSERVE_API_KEY=$KEY` where KEY was never set."""
    monkeypatch.setenv(f"TRIOSERVE_{name.upper()}", blank)
    assert refusal([], capsys) == f"TRIOSERVE_{name.upper()} is empty; unset it to have no key"


def test_secrets_are_shown_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SECRETS == ("api_key", "admin_api_key")
    lines = "api_key = ['hidden-1']\nadmin_api_key = 'hidden-2'\n"
    path = tmp_path / "settings.toml"
    path.write_text(lines)
    config = load_config(["--config", str(path)])
    assert config.api_key == ("hidden-1",)
    assert "hidden" not in repr(config)
    assert "hidden" not in str(config)
    # With a file, the defaults that --help shows are the file's.
    main(["serve", "--config", str(path), "--help"])
    assert "hidden" not in capsys.readouterr().out
    path.write_text("api_key = 'hidden-3'")
    assert refusal(["--config", str(path)], capsys).endswith("api_key must be a list of strings")


@pytest.mark.row("S-G-005")
def test_help_shows_every_setting_its_variable_and_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    entries = re.split(r" (?=--[a-z-]+ (?:TEXT|INTEGER|FLOAT|FILE|/))", text)
    for attribute in settings():
        flag, variable = flag_name(attribute.name), f"TRIOSERVE_{attribute.name.upper()}"
        (entry,) = [entry for entry in entries if entry.startswith(f"{flag} ")]
        # Long names are broken at their hyphens.
        entry = entry.replace(" ", "")
        assert f"envvar:{variable}" in entry, entry
        if attribute.default not in ((), None):
            shown = f"no-{flag[2:]}" if attribute.default is False else attribute.default
            assert f"default:{shown}]" in entry, entry
    assert "--config FILE.toml" in text


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"trioserve, version {__version__}\n"


@pytest.mark.row("S-G-001")
def test_the_address_is_the_contracts_unless_told_otherwise() -> None:
    assert (ServerConfig().host, ServerConfig().port) == ("127.0.0.1", 30000)
    config = load_config(["--host", "0.0.0.0", "--port", "8000"])
    assert (config.host, config.port) == ("0.0.0.0", 8000)
