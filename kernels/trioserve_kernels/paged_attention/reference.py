"""Paged attention written for reading: gather a row's pages, then a plain softmax."""

import torch
from torch import Tensor


def reference(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    row_sequence: Tensor,
    positions: Tensor,
    scale: float,
) -> Tensor:
    """q [rows, hq, d] -> [rows, hq, d] float32.

    k_pages, v_pages [num_pages, hkv, page_size, d]; page_table [num_seqs, max_pages] int32;
    row_sequence, positions [rows] int32.
    """
    num_kv_heads, page_size = k_pages.shape[1:3]
    num_repeats = q.shape[1] // num_kv_heads
    out = torch.empty_like(q)
    for row in range(q.shape[0]):
        length = int(positions[row]) + 1
        num_pages = -(-length // page_size)
        pages = page_table[int(row_sequence[row]), :num_pages].long()
        # [pages, hkv, slots, d] -> [hq, length, d]
        keys, values = (
            stored[pages]
            .transpose(0, 1)
            .flatten(1, 2)[:, :length]
            .repeat_interleave(num_repeats, 0)
            for stored in (k_pages, v_pages)
        )
        scores = torch.einsum("hd,hld->hl", q[row], keys) * scale
        out[row] = torch.einsum("hl,hld->hd", scores.softmax(dim=-1), values)
    return out
