"""Reading a model's safetensors one tensor at a time.

The files are mapped, not read: a tensor costs memory only while somebody holds it.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Self

from attrs import frozen
from safetensors import SafetensorError, safe_open

from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import torch

_INDEX_NAME = "model.safetensors.index.json"
_FLOAT_TYPES = ("F16", "BF16", "F32", "F64")


@frozen
class _Place:
    file: Any
    shape: tuple[int, ...]
    dtype: str


class Weights:
    """The tensors of a model folder by their Hugging Face names.

    A context manager; tensors taken from it stay valid. Raises ConfigError for a missing or
    unreadable file, a missing tensor, and a tensor of another shape than asked for.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._places: dict[str, _Place] = {}
        for path in _weight_paths(directory):
            try:
                file = safe_open(path, framework="pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise ConfigError(
                    f"cannot read the weights {path}: {error}; copy or download the file again"
                ) from error
            for name in file.keys():  # noqa: SIM118  (not a dict: it cannot be iterated)
                header = file.get_slice(name)
                self._places[name] = _Place(file, tuple(header.get_shape()), header.get_dtype())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._places.clear()  # unmaps the files

    def __contains__(self, name: str) -> bool:
        return self._resolve(name) in self._places

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor `name`, in the dtype of the file."""
        place = self._places.get(self._resolve(name))
        if place is None:
            raise ConfigError(f"the weights in {self._directory} have no tensor {name}")
        if place.shape != shape:
            raise ConfigError(
                f"tensor {name} in {self._directory} has the shape {list(place.shape)}, "
                f"but config.json says {list(shape)}"
            )
        if place.dtype not in _FLOAT_TYPES:
            raise ConfigError(f"tensor {name} has the dtype {place.dtype}, which is not supported")
        tensor: torch.Tensor = place.file.get_tensor(self._resolve(name))
        return tensor

    def num_elements(self) -> int:
        """Numbers in all tensors."""
        return sum(math.prod(place.shape) for place in self._places.values())

    def _resolve(self, name: str) -> str:
        """Some folders hold the inner model alone, whose names have no `model.` in front."""
        if name not in self._places and name.startswith("model."):
            return name.removeprefix("model.")
        return name


def _weight_paths(directory: Path) -> list[Path]:
    """The files of one set of weights: those of the index, or else the only file there is."""
    index = directory / _INDEX_NAME
    if index.is_file():
        try:
            names = set(json.loads(index.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{index} is not a safetensors index: {error}") from error
        paths = [directory / name for name in sorted(names)]
        for path in paths:
            if not path.is_file():
                raise ConfigError(f"{path}, named by {_INDEX_NAME}, is missing")
        return paths
    if (directory / "model.safetensors").is_file():
        return [directory / "model.safetensors"]
    paths = sorted(directory.glob("*.safetensors"))
    if len(paths) != 1:
        found = ", ".join(path.name for path in paths) or "none"
        raise ConfigError(
            f"{directory} must hold model.safetensors or {_INDEX_NAME}; found: {found}"
        )
    return paths
