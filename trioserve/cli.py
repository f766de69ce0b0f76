"""The command line. Flags, `TRIOSERVE_*` variables and `--config` all come from `ServerConfig`."""

import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trioserve import __version__
from trioserve.config import ServerConfig, settings
from trioserve.errors import ConfigError
from trioserve.setting import flag_name, is_secret

if TYPE_CHECKING:
    from attrs import Attribute

EXIT_CONFIG = 2
"""Exit code for a setting, path or model that cannot be used."""

_CONTEXT_SETTINGS = {
    "auto_envvar_prefix": "TRIOSERVE",
    # `--model_path` is `--model-path`.
    "token_normalize_func": lambda name: name.replace("_", "-"),
    "help_option_names": ["-h", "--help"],
    "show_default": True,
    "max_content_width": 100,
}

_TYPES: dict[Any, click.ParamType[Any]] = {
    str: click.STRING,
    str | None: click.STRING,
    bool: click.BOOL,
    int: click.INT,
    float: click.FLOAT,
    int | None: click.INT,
    float | None: click.FLOAT,
    tuple[str, ...]: click.STRING,
}

_TOML_TYPES: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("a string", (str,)),
    str | None: ("a string", (str,)),
    bool: ("a boolean", (bool,)),
    int: ("an integer", (int,)),
    float: ("a number", (int, float)),
    int | None: ("an integer", (int,)),
    float | None: ("a number", (int, float)),
    tuple[str, ...]: ("a list of strings", (list,)),
}


def _variable(attribute: "Attribute[Any]") -> str:
    return f"TRIOSERVE_{attribute.name.upper()}"


def _option(attribute: "Attribute[Any]") -> click.Option:
    flag, is_repeatable = flag_name(attribute.name), attribute.type == tuple[str, ...]
    # A flag wins over a variable and a file, so it must be able to say no as well.
    declared = f"{flag}/--no-{flag[2:]}" if attribute.type is bool else flag
    return click.Option(
        [declared, attribute.name],
        type=_TYPES[attribute.type],
        default=None if is_repeatable else attribute.default,
        multiple=is_repeatable,
        help=attribute.metadata["help"],
        envvar=_variable(attribute),
        show_envvar=True,
        # With --config, the default that --help shows is the file's.
        show_default=not is_secret(attribute),
    )


def _read_toml(path: str) -> dict[str, Any]:
    """The settings of a TOML file, keyed as attributes. Raises ConfigError."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} is not valid TOML: {error}") from error
    read = {name.replace("-", "_"): value for name, value in table.items()}
    known = {attribute.name: attribute for attribute in settings()}
    for name, value in read.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "see `trioserve serve --help`"
            raise ConfigError(f"--config {path}: unknown setting {name}; {hint}")
        _require_toml_type(path, known[name], value)
    return read


def _require_toml_type(path: str, attribute: "Attribute[Any]", value: Any) -> None:
    """Click would make something of a value of another type, `5` of `5.5` for one."""
    words, types = _TOML_TYPES[attribute.type]
    is_fitting = isinstance(value, types) and isinstance(value, bool) == (types == (bool,))
    if attribute.name == "default_max_tokens":  # a number or a word
        words, is_fitting = "a string or an integer", type(value) in {str, int}
    if isinstance(value, list):
        is_fitting = is_fitting and all(isinstance(item, str) for item in value)
    if not is_fitting:
        got = "" if is_secret(attribute) else f", got {value!r}"
        raise ConfigError(f"--config {path}: {attribute.name} must be {words}{got}")


def _refuse_blank_keys() -> None:
    """Click takes a variable without content for one that is not set, which would open the server.

    Raises ConfigError.
    """
    for attribute in settings():
        variable = _variable(attribute)
        if is_secret(attribute) and not os.environ.get(variable, "unset").strip():
            raise ConfigError(f"{variable} is empty; unset it to have no key")


def _apply_config_file(
    context: click.Context, _parameter: click.Parameter, path: str | None
) -> None:
    _refuse_blank_keys()
    if path is not None:
        # Eager, so this runs before the other options look up their defaults.
        context.default_map = _read_toml(path)


def _command(name: str, callback: Callable[..., None] | None, help_text: str) -> click.Command:
    config_option = click.Option(
        ["--config"],
        expose_value=False,
        is_eager=True,
        callback=_apply_config_file,
        envvar="TRIOSERVE_CONFIG",
        show_envvar=True,
        metavar="FILE.toml",
        help="Settings from a TOML file; flags and variables win over it.",
    )
    return click.Command(
        name,
        params=[*(_option(attribute) for attribute in settings()), config_option],
        callback=callback,
        help=help_text,
        context_settings=_CONTEXT_SETTINGS,
    )


def load_config(arguments: Sequence[str] = ()) -> ServerConfig:
    """Settings from `arguments`, `TRIOSERVE_*` variables and `--config`. Raises ConfigError."""
    command = _command("serve", None, "")
    try:
        context = command.make_context("trioserve", list(arguments))
    except click.ClickException as error:
        raise ConfigError(error.format_message()) from error
    return ServerConfig(**context.params)


def _serve(**values: Any) -> None:
    from trioserve.serve import serve_forever  # heavy: not for --help

    sys.exit(serve_forever(ServerConfig(**values)))


def _fail(message: str) -> int:
    click.echo(f"trioserve: {message}", err=True)
    return EXIT_CONFIG


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `trioserve` command."""
    group = click.Group(
        "trioserve",
        help="Serve language models over an OpenAI-compatible HTTP API.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.add_command(
        _command("serve", _serve, "Load a model and serve it until SIGTERM or Ctrl-C.")
    )
    click.version_option(__version__, prog_name="trioserve")(group)
    try:
        group.main(arguments, standalone_mode=False, prog_name="trioserve")
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(EXIT_CONFIG)
    except click.ClickException as error:
        sys.exit(_fail(error.format_message()))
    except ConfigError as error:
        sys.exit(_fail(str(error)))
    except click.Abort:
        sys.exit(130)
