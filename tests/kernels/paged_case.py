"""Inputs for paged attention: ragged sequences in shuffled pages, NaN in every slot not written."""

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor


@frozen(eq=False)
class PagedCase:
    """Arguments of paged_attention, in its order."""

    q: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_table: Tensor
    row_sequence: Tensor
    positions: Tensor
    scale: float

    @property
    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float]:
        return (
            self.q,
            self.k_pages,
            self.v_pages,
            self.page_table,
            self.row_sequence,
            self.positions,
            self.scale,
        )

    def rows(self, chosen: Sequence[int] | slice) -> "PagedCase":
        """The same pages, asked for some of the rows."""
        return PagedCase(
            self.q[chosen].contiguous(),
            self.k_pages,
            self.v_pages,
            self.page_table,
            self.row_sequence[chosen].contiguous(),
            self.positions[chosen].contiguous(),
            self.scale,
        )


def paged_case(
    rows: Sequence[tuple[int, int]],
    *,
    num_q_heads: int = 6,
    num_kv_heads: int = 2,
    head_dim: int = 16,
    page_size: int = 16,
    seed: int = 0,
) -> PagedCase:
    """A row for each (sequence, position); a sequence is as long as its last row needs."""
    generator = torch.Generator().manual_seed(seed)
    num_sequences = max(sequence for sequence, _ in rows) + 1
    lengths = [0] * num_sequences
    for sequence, position in rows:
        lengths[sequence] = max(lengths[sequence], position + 1)
    max_pages = max(-(-length // page_size) for length in lengths)
    num_pages = num_sequences * max_pages + 2
    shape = (num_pages, num_kv_heads, page_size, head_dim)
    k_pages, v_pages = torch.full(shape, torch.nan), torch.full(shape, torch.nan)
    order = torch.randperm(num_pages, generator=torch.Generator().manual_seed(seed))
    page_table = order[: num_sequences * max_pages].view(num_sequences, max_pages).int()
    for sequence, length in enumerate(lengths):
        for position in range(length):
            page, offset = page_table[sequence, position // page_size], position % page_size
            for pages in (k_pages, v_pages):
                pages[page, :, offset] = torch.randn(num_kv_heads, head_dim, generator=generator)
    return PagedCase(
        torch.randn(len(rows), num_q_heads, head_dim, generator=generator),
        k_pages,
        v_pages,
        page_table,
        torch.tensor([sequence for sequence, _ in rows], dtype=torch.int32),
        torch.tensor([position for _, position in rows], dtype=torch.int32),
        head_dim**-0.5,
    )
