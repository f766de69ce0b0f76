"""Settings from flags, variables and a TOML file; a bad one is one line that names it."""

from pathlib import Path

import pytest

from trioserve.cli import load_config
from trioserve.errors import ConfigError


def from_toml(folder: Path, text: str) -> list[str]:
    path = folder / "settings.toml"
    path.write_text(text)
    return ["--config", str(path)]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "flag",
    [
        "--stall-timeout",
        "--queue-timeout",
        "--request-timeout",
        "--drain-timeout",
        "--keep-alive-timeout",
    ],
)
def test_a_number_of_seconds_is_finite(flag: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag} must be finite, got {text}"):
        load_config([flag, text])


def test_more_running_requests_than_arrays_can_hold_are_refused() -> None:
    with pytest.raises(ConfigError, match="--max-running-requests must be at least 1 and at most"):
        load_config(["--max-running-requests", "100000000"])


def test_a_served_name_is_not_empty() -> None:
    with pytest.raises(ConfigError, match="--served-model-name must not be empty"):
        load_config(["--served-model-name", ""])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('port = "x"', "port must be an integer, got 'x'"),
        ("context_length = 5.5", r"context_length must be an integer, got 5\.5"),
        ("context_length = true", "context_length must be an integer, got True"),
        ("context_length = [1]", r"context_length must be an integer, got \[1\]"),
        ('stall_timeout = "soon"', "stall_timeout must be a number, got 'soon'"),
        ("queue_timeout = false", "queue_timeout must be a number, got False"),
        ("host = 5", "host must be a string, got 5"),
        ('served_model_name = "a"', "served_model_name must be a list of strings, got 'a'"),
        ("served_model_name = [1]", r"served_model_name must be a list of strings, got \[1\]"),
        ("default_max_tokens = 1.5", "default_max_tokens must be a string or an integer"),
    ],
)
def test_a_toml_value_of_another_type_is_refused_by_name(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"settings\.toml: {message}"):
        load_config(from_toml(tmp_path, line))


def test_toml_values_of_the_right_type_are_taken(tmp_path: Path) -> None:
    lines = [
        'served-model-name = ["a", "b"]',
        "stall_timeout = 5",
        "default_max_tokens = 32",
        "page_size = 8",
        "queue_timeout = 1.5",
    ]
    config = load_config([*from_toml(tmp_path, "\n".join(lines)), "--page-size", "32"])
    assert config.served_model_name == ("a", "b")
    assert (config.stall_timeout, config.queue_timeout) == (5.0, 1.5)
    assert (config.default_max_tokens, config.page_size) == ("32", 32)


def test_an_unknown_toml_key_is_named_with_the_one_it_resembles(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting prot; did you mean port"):
        load_config(from_toml(tmp_path, "prot = 1"))
    with pytest.raises(ConfigError, match="unknown setting zzzzz; see `trioserve serve --help`"):
        load_config(from_toml(tmp_path, "zzzzz = 1"))
