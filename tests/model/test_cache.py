"""The cache of converted models: hit, miss, damage, two processes at once; no real conversion."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trioserve.errors import ConfigError
from trioserve.model import cache as cache_module
from trioserve.model.cache import cache_directory, converted
from trioserve.model.manifest import MANIFEST_NAME, Manifest, find_fault


class FakeConversion:
    """Stands for the child process: writes a folder with a manifest and counts its calls."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.num_running = 0

    def __call__(self, _source: Path, folder: Path, _stop: threading.Event) -> None:
        self.num_calls += 1
        self.num_running += 1
        assert self.num_running == 1, "two conversions of one model at once"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(range(256)) * 8)
        (folder / MANIFEST_NAME).write_text(Manifest.of(folder, "x").to_json())
        self.num_running -= 1


@pytest.fixture
def conversion(cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeConversion:
    assert not cache.exists()
    fake = FakeConversion()
    monkeypatch.setattr(cache_module, "_run_child", fake)
    return fake


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(1000))
    return path


def convert(source: Path) -> Path:
    return converted(source, threading.Event())


def test_a_model_is_converted_once(conversion: FakeConversion, source: Path) -> None:
    assert convert(source) == convert(source)
    assert conversion.num_calls == 1


def test_another_content_is_another_model(conversion: FakeConversion, source: Path) -> None:
    first = convert(source)
    source.write_bytes(b"GGUF" + bytes(999) + b"x")
    assert convert(source) != first
    assert conversion.num_calls == 2


def test_a_reinstalled_package_is_not_converted_again(
    conversion: FakeConversion, source: Path, tmp_path: Path
) -> None:
    first = convert(source)
    elsewhere = tmp_path / "new" / "model.gguf"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(source.read_bytes())
    assert convert(elsewhere) == first
    assert conversion.num_calls == 1


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 2048), "another hash"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 10), "10 bytes instead of 2048"),
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / MANIFEST_NAME).unlink(), "no manifest"),
        (lambda f: (f / MANIFEST_NAME).write_text('{"version": 1'), "cannot be read"),
        (lambda f: (f / MANIFEST_NAME).write_text("[]"), "cannot be read"),
        (
            lambda f: (f / MANIFEST_NAME).write_text('{"version": 0, "source": "", "files": []}'),
            "conversion version 0",
        ),
    ],
)
def test_a_damaged_model_is_rebuilt_and_said_so(
    damage: object,
    fault: str,
    conversion: FakeConversion,
    source: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = convert(source)
    assert callable(damage)
    damage(folder)
    assert fault in (find_fault(folder) or "")
    with caplog.at_level("WARNING", logger="trioserve"):
        assert convert(source) == folder
    assert conversion.num_calls == 2
    assert find_fault(folder) is None
    assert fault in caplog.text
    assert "rebuilding" in caplog.text


def test_two_threads_convert_once(conversion: FakeConversion, source: Path) -> None:
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(convert(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 4
    assert conversion.num_calls == 1


@pytest.mark.slow
def test_a_lock_held_by_another_process_is_waited_for(
    conversion: FakeConversion, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = convert(source)
    holder = (
        "import sys; from filelock import FileLock\n"
        "with FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, f"{folder}.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        stop = threading.Event()
        stop.set()
        with (
            caplog.at_level("INFO", logger="trioserve"),
            pytest.raises(cache_module.LoadStopped),
        ):
            converted(source, stop)
        process.stdin.close()
    assert convert(source) == folder


def test_an_unusable_cache_directory_names_the_variable(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRIOSERVE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set TRIOSERVE_CACHE"):
        convert(source)


def test_cache_directory_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIOSERVE_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/trioserve")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_directory() == Path("/home/someone/.cache/trioserve")
    monkeypatch.setenv("TRIOSERVE_CACHE", "/elsewhere")
    assert cache_directory() == Path("/elsewhere")
