"""The storage behind the page pool: keys and values of every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from trioserve.model.spec import ModelSpec

_ELEMENT_BYTES = 4  # float32, the form the CPU kernels read in place


class KvPages:
    """Two arrays [layers, pages, kv heads, page_size, head_dim], keys and values.

    Which page belongs to whom is the pool's business; here a page is a number.
    """

    def __init__(self, spec: ModelSpec, num_pages: int, page_size: int) -> None:
        """Raises MemoryError if the system does not give the address space."""
        self.num_pages = num_pages
        self.page_size = page_size
        shape = (spec.num_layers, num_pages, spec.num_kv_heads, page_size, spec.head_dim)
        # numpy takes zeroed memory from the system, which gives real memory to a page only when it
        # is first written; torch.zeros would touch gigabytes at every start.
        self._keys = torch.from_numpy(np.zeros(shape, dtype=np.float32))
        self._values = torch.from_numpy(np.zeros(shape, dtype=np.float32))

    @property
    def dtype(self) -> str:
        """How the numbers of a block are to be read."""
        return "float32"

    @property
    def layout(self) -> str:
        """What a block is: keys and values, each [layers, kv heads, page_size, head_dim]."""
        layers, _, heads, page_size, head_dim = self._keys.shape
        return f"keys, values: [{layers}, {heads}, {page_size}, {head_dim}]"

    def read(self, page_id: int) -> bytes:
        """A copy of the page in all layers. Safe while steps run if no step writes to the page."""
        return np.stack([held[:, page_id].numpy() for held in (self._keys, self._values)]).tobytes()

    def write(self, page_id: int, block: bytes) -> None:
        """Fill the page with what `read` gave. Safe while steps run if no step names the page."""
        halves = np.frombuffer(block, np.float32).reshape(2, *self._keys[:, page_id].shape)
        for held, half in zip((self._keys, self._values), halves, strict=True):
            held[:, page_id].numpy()[...] = half

    def of_layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Views of one layer's keys and values, each [pages, kv heads, page_size, head_dim]."""
        return self._keys[index], self._values[index]


def page_bytes(spec: ModelSpec, page_size: int) -> int:
    """Memory of one page in all layers."""
    return spec.num_kv_elements_per_token * page_size * _ELEMENT_BYTES
