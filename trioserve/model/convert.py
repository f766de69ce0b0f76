"""Conversion of a GGUF file to a folder of safetensors: `python -m trioserve.model.convert`.

    python -m trioserve.model.convert SRC.gguf DST [--end-with-stdin]

Runs as a child process of the server, so that Ctrl-C ends it and its memory is given back. DST
appears whole or not at all. Progress goes to stderr; a failure prints one line on stdout, which
the parent shows, and ends with code 1. With --end-with-stdin it ends when its standard input is
closed, which happens when the parent dies, however it dies.

Matrices are stored as float16 (in a GGUF file they are coarser than that) and vectors as float32.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trioserve.errors import ConfigError
from trioserve.model.gguf_source import GgufSource, SourceTensor
from trioserve.model.manifest import MANIFEST_NAME, Manifest
from trioserve.model.progress import Progress
from trioserve.model.safetensors_writer import TensorLayout, write_safetensors
from trioserve.model.spec import read_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

END_WITH_STDIN = "--end-with-stdin"
_MAX_FLOAT16 = float(np.finfo(np.float16).max)


def convert(source_path: Path, destination: Path, progress: Progress) -> None:
    """Convert and put the result at `destination`, replacing what is there.

    The caller holds the lock of `destination`. Raises ConfigError for a file that is no supported
    model, OSError if the disk is full or not writable.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    remove_parts(destination)
    part = destination.with_name(f"{destination.name}.part-{os.getpid()}")
    part.mkdir()
    try:
        progress.say(f"reading {source_path.name}")
        source = GgufSource(source_path)
        progress.say("converting config and tokenizer")
        source.write_config(part)
        read_spec(part)  # refuse what cannot be served before the long part
        source.write_tokenizer(part)
        _write_weights(source, part / "model.safetensors", progress)
        progress.say("checking")
        manifest = Manifest.of(part, source_path.name)
        (part / MANIFEST_NAME).write_text(manifest.to_json())
        _sync(part)
        _replace(part, destination)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def remove_parts(destination: Path) -> None:
    """Remove what a conversion that was ended has left. The caller holds the lock."""
    for part in destination.parent.glob(f"{destination.name}.part-*"):
        shutil.rmtree(part, ignore_errors=True)


def _write_weights(source: GgufSource, path: Path, progress: Progress) -> None:
    tensors = list(source.tensors())
    layouts = [
        TensorLayout(tensor.name, tensor.shape, "F16" if len(tensor.shape) > 1 else "F32")
        for tensor in tensors
    ]
    total = sum(layout.num_bytes for layout in layouts)
    with progress.bytes_of("converting weights", total) as on_bytes:
        write_safetensors(path, layouts, _arrays(tensors, layouts), on_bytes)


def _arrays(
    tensors: Sequence[SourceTensor], layouts: Sequence[TensorLayout]
) -> Iterator[np.ndarray[Any, Any]]:
    for tensor, layout in zip(tensors, layouts, strict=True):
        values = tensor.read()
        largest = float(np.abs(values).max(initial=0.0))
        limit = _MAX_FLOAT16 if layout.dtype == "F16" else float(np.finfo(np.float32).max)
        if not largest <= limit:  # also true of NaN
            raise ConfigError(f"tensor {tensor.name} holds {largest}, which does not fit 16 bits")
        yield values


def _replace(part: Path, destination: Path) -> None:
    """Move the finished folder to its place.

    A folder cannot be renamed over another that is not empty, so a corrupt predecessor is moved
    aside first; a crash between the two renames leaves no model, which the next start rebuilds.
    """
    if destination.exists():
        old = destination.with_name(f"{destination.name}.part-old-{os.getpid()}")
        destination.rename(old)
        part.rename(destination)
        shutil.rmtree(old, ignore_errors=True)
    else:
        part.rename(destination)
    _sync_folder(destination.parent)


def _sync(directory: Path) -> None:
    for path in directory.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    _sync_folder(directory)


def _sync_folder(directory: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_with_parent(destination: Path) -> None:
    """Wait for the end of standard input, then end this process and remove what it had begun."""
    # Not sys.stdin: its lock, held by a blocked read, would break the interpreter's own shutdown.
    while os.read(0, 4096):
        pass
    remove_parts(destination)
    # The main thread may be deep in a long computation; nothing else can stop it at once.
    os._exit(1)


def main(arguments: Sequence[str]) -> int:
    """Entry of the child process; the exit code."""
    source, destination = Path(arguments[0]), Path(arguments[1])
    if END_WITH_STDIN in arguments:
        threading.Thread(target=_end_with_parent, args=(destination,), daemon=True).start()
    try:
        convert(source, destination, Progress(sys.stderr))
    except (ConfigError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
