"""`fingerprint`: a name for a model's weights that other weights do not have."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from trioserve.errors import ConfigError
from trioserve.model.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from pathlib import Path

_WEIGHTS = ("*.safetensors", "config.json")


def fingerprint(directory: Path) -> str:
    """A hash of what is computed with: config and weights. Blocks, about a second a gigabyte.

    The manifest of a converted model has the hashes of its files already, and loading has compared
    them. Raises ConfigError if a file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=32)
    manifest = directory / MANIFEST_NAME
    names = (MANIFEST_NAME,) if manifest.is_file() else _WEIGHTS
    try:
        for path in sorted(path for name in names for path in directory.glob(name)):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while part := file.read(1 << 22):
                    digest.update(part)
    except OSError as error:
        raise ConfigError(f"cannot read {directory}: {error.strerror or error}") from error
    return digest.hexdigest()
