"""Rotate queries and keys to their positions and write keys and values into their pages.

RoPE (Su et al. 2021, arXiv:2104.09864) in the half-split form of Hugging Face's Llama: dimension i
is paired with i + d/2. Qwen3 norms each head of q and k first.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trioserve_kernels import rms_norm
from trioserve_kernels.jit import kernel


def reference(
    qkv: Tensor,
    positions: Tensor,
    slots: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
) -> Tensor:
    """The rotated queries [rows, hq, d]; rotated keys and plain values go to the pages.

    qkv [rows, (hq + 2*hkv) * d] float32; positions [rows] int32; slots [rows] int64, each
    page * page_size + offset; cos, sin [max_pos, d/2]; pages [num_pages, hkv, page_size, d].
    """
    _, num_kv_heads, page_size, head_dim = k_pages.shape
    heads = qkv.unflatten(-1, (-1, head_dim))
    num_q_heads = heads.shape[1] - 2 * num_kv_heads
    q, k, v = heads.split([num_q_heads, num_kv_heads, num_kv_heads], dim=1)
    if q_norm is not None:
        q = rms_norm.reference(q, q_norm, eps)
    if k_norm is not None:
        k = rms_norm.reference(k, k_norm, eps)
    page, offset = slots // page_size, slots % page_size
    k_pages[page, :, offset] = _rotate(k, positions, cos, sin)
    v_pages[page, :, offset] = v
    return _rotate(q, positions, cos, sin)


def _rotate(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    c, s = cos[positions.long()].unsqueeze(1), sin[positions.long()].unsqueeze(1)
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * c - high * s, high * c + low * s), dim=-1)


@kernel
def _norm_and_rotate(source: Any, norm: Any, eps: Any, cos: Any, sin: Any, out: Any) -> None:
    """One head: `source` [d] -> `out` [d]; an empty `norm` means none."""
    half = cos.shape[0]
    if norm.shape[0] == 0:
        for i in range(half):
            low, high = source[i], source[half + i]
            out[i] = low * cos[i] - high * sin[i]
            out[half + i] = high * cos[i] + low * sin[i]
    else:
        scale = rms_norm.inverse_rms(source, eps)
        for i in range(half):
            low = source[i] * scale * norm[i]
            high = source[half + i] * scale * norm[half + i]
            out[i] = low * cos[i] - high * sin[i]
            out[half + i] = high * cos[i] + low * sin[i]


@kernel
def cpu(
    qkv: Any,
    positions: Any,
    slots: Any,
    cos: Any,
    sin: Any,
    k_pages: Any,
    v_pages: Any,
    q_norm: Any,
    k_norm: Any,
    eps: Any,
    q_out: Any,
) -> None:
    """`reference` on C-contiguous arrays; no norm is an empty array. Writes pages and `q_out`.

    Raises IndexError, before it writes anything, for a slot or a position out of range.
    """
    num_pages, num_kv_heads, page_size, head_dim = k_pages.shape
    num_q_heads = q_out.shape[1]
    for row in range(slots.shape[0]):
        if slots[row] < 0 or slots[row] >= num_pages * page_size:
            raise IndexError("a slot is outside the pages")
        if positions[row] < 0 or positions[row] >= cos.shape[0]:
            raise IndexError("a position is outside the rotary table")
    for row in range(slots.shape[0]):
        page, offset = slots[row] // page_size, slots[row] % page_size
        row_cos, row_sin = cos[positions[row]], sin[positions[row]]
        for head in range(num_q_heads):
            source = qkv[row, head * head_dim : (head + 1) * head_dim]
            _norm_and_rotate(source, q_norm, eps, row_cos, row_sin, q_out[row, head])
        for head in range(num_kv_heads):
            start = (num_q_heads + head) * head_dim
            source = qkv[row, start : start + head_dim]
            _norm_and_rotate(source, k_norm, eps, row_cos, row_sin, k_pages[page, head, offset])
            start += num_kv_heads * head_dim
            for i in range(head_dim):
                v_pages[page, head, offset, i] = qkv[row, start + i]


NO_NORM = np.empty(0, np.float32)
