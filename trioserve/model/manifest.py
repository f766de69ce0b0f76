"""The manifest of a converted model: which files belong to it, their sizes and hashes.

It is written last, so a folder without one was never finished.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from attrs import asdict, frozen

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_NAME = "manifest.json"
# Raised whenever the converter writes something else for the same source.
CONVERSION_VERSION = 1


@frozen
class ManifestFile:
    """One file of the folder."""

    name: str
    size: int
    sha256: str


@frozen
class Manifest:
    """All files of a converted model but the manifest itself."""

    version: int
    source: str
    files: tuple[ManifestFile, ...]

    @classmethod
    def of(cls, directory: Path, source: str) -> Manifest:
        """Describe the files now in `directory`."""
        files = tuple(
            ManifestFile(path.name, path.stat().st_size, _sha256(path))
            for path in sorted(directory.iterdir())
            if path.name != MANIFEST_NAME
        )
        return cls(CONVERSION_VERSION, source, files)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, document: Any) -> Manifest:
        """Raises KeyError, TypeError or ValueError for anything but our own JSON."""
        files = tuple(
            ManifestFile(str(file["name"]), int(file["size"]), str(file["sha256"]))
            for file in document["files"]
        )
        return cls(int(document["version"]), str(document["source"]), files)


def find_fault(directory: Path) -> str | None:
    """Why `directory` is not a whole converted model, in a few words; None if it is.

    Sizes are compared first, so that a half-written model is not hashed in vain. Hashing reads
    every byte: some tenths of a second for the default model.
    """
    path = directory / MANIFEST_NAME
    if not directory.is_dir():
        return "it does not exist"
    try:
        manifest = Manifest.from_json(json.loads(path.read_bytes()))
    except OSError:
        return "it has no manifest"
    except (ValueError, KeyError, TypeError):
        return "its manifest cannot be read"
    if manifest.version != CONVERSION_VERSION:
        return f"it was written by conversion version {manifest.version}"
    for file in manifest.files:
        found = directory / file.name
        if not found.is_file():
            return f"{file.name} is missing"
        if found.stat().st_size != file.size:
            return f"{file.name} has {found.stat().st_size} bytes instead of {file.size}"
    for file in manifest.files:
        if _sha256(directory / file.name) != file.sha256:
            return f"{file.name} has another hash"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
