"""The user's cache of converted models, and the child process that fills it.

Used by `loader` alone. Several processes may ask for the same model at once: a file lock beside
the folder lets one convert while the others wait.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from trioserve.errors import ConfigError
from trioserve.model.convert import END_WITH_STDIN, remove_parts
from trioserve.model.manifest import CONVERSION_VERSION, find_fault

if TYPE_CHECKING:
    import threading

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_SAMPLE_BYTES = 1 << 16
_NUM_SAMPLES = 32


class LoadStopped(ConfigError):
    """Loading was stopped on purpose: the server is shutting down."""


def cache_directory() -> Path:
    """`$TRIOSERVE_CACHE`, or `trioserve` in the platform's cache directory; not yet created."""
    if chosen := os.environ.get("TRIOSERVE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "trioserve"


def converted(gguf_path: Path, stop: threading.Event) -> Path:
    """The folder with the converted form of `gguf_path`, made now if it is missing or damaged.

    Blocks while converting; `stop`, set by another thread, ends that with LoadStopped. Raises
    ConfigError if the file cannot be converted.
    """
    folder = cache_directory() / "models" / f"{gguf_path.stem}-{_fingerprint(gguf_path)}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(folder.name + ".lock"))
        _acquire(lock, stop)
    except OSError as error:
        raise ConfigError(
            f"the cache directory {folder.parent} cannot be used ({error.strerror or error}); "
            "set TRIOSERVE_CACHE to a writable one"
        ) from error
    try:
        # The lock is kept while the old folder is checked: another process may be replacing it.
        fault = find_fault(folder)
        if fault is None:
            return folder
        if folder.exists():
            logger.warning("the converted model %s is damaged (%s): rebuilding", folder, fault)
        else:
            logger.info("converting %s once into %s", gguf_path, folder)
        try:
            _run_child(gguf_path, folder, stop)
        finally:
            remove_parts(folder)  # of a child that was ended
        return folder
    finally:
        lock.release()


def _acquire(lock: FileLock, stop: threading.Event) -> None:
    is_waiting_logged = False
    while True:
        try:
            lock.acquire(timeout=_POLL_S)
            return
        except Timeout:
            if stop.is_set():
                raise LoadStopped("loading was stopped") from None
            if not is_waiting_logged:
                logger.info("waiting for another process that converts this model")
                is_waiting_logged = True


def _run_child(gguf_path: Path, folder: Path, stop: threading.Event) -> None:
    command = [sys.executable, "-m", "trioserve.model.convert", str(gguf_path), str(folder)]
    # What the libraries print about their own doings is not for the user of a server.
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        [*command, END_WITH_STDIN],
        stdin=subprocess.PIPE,  # its end tells the child that we are gone
        stdout=subprocess.PIPE,
        # Out of reach of the terminal's Ctrl-C, which is for the server: that sets `stop`, or dies.
        start_new_session=True,
        env=environment,
        text=True,
        errors="replace",
    ) as child:
        # The child writes at most one line to the pipe, so it never waits for us to read.
        while True:
            try:
                child.wait(timeout=_POLL_S)
                break
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    child.terminate()
                    raise LoadStopped("loading was stopped during the conversion") from None
            except BaseException:
                child.terminate()
                raise
        assert child.stdout is not None
        lines = child.stdout.read().strip().splitlines()
    if child.returncode:
        reason = lines[-1] if lines else f"exit code {child.returncode}"
        raise ConfigError(f"cannot convert {gguf_path}: {reason}")


def _fingerprint(path: Path) -> str:
    """Names the file's content: its size and samples from all over it.

    Rejected: a hash of all bytes, which costs a start many seconds for a large model, and the
    modification time, which changes whenever the package is installed again.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(f"{CONVERSION_VERSION} {size}".encode())
    with path.open("rb") as stream:
        for index in range(_NUM_SAMPLES):
            stream.seek(max(0, size - _SAMPLE_BYTES) * index // (_NUM_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]
