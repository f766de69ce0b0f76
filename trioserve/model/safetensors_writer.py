"""Writing one safetensors file tensor by tensor, so that a model is never whole in memory.

Rejected: `safetensors.numpy.save_file`, which takes all tensors at once.
"""

from __future__ import annotations

import json
import math
import os
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

_NUMPY_TYPES: Mapping[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


@frozen
class TensorLayout:
    """A tensor to be written: `dtype` is F16 or F32 in safetensors' spelling."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * _NUMPY_TYPES[self.dtype].itemsize


def write_safetensors(
    path: Path,
    layouts: Sequence[TensorLayout],
    arrays: Iterable[np.ndarray[Any, Any]],
    on_bytes: Callable[[int], None],
) -> None:
    """Write `arrays`, which come in the order of `layouts`, and sync the file to the disk."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for layout in layouts:
        end = offset + layout.num_bytes
        header[layout.name] = {
            "dtype": layout.dtype,
            "shape": list(layout.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)))
        stream.write(text)
        for layout, array in zip(layouts, arrays, strict=True):
            assert array.shape == layout.shape, (array.shape, layout)
            data = np.ascontiguousarray(array, dtype=_NUMPY_TYPES[layout.dtype])
            stream.write(data.data)
            on_bytes(layout.num_bytes)
        stream.flush()
        os.fsync(stream.fileno())
