"""The one door to the kernels: torch tensors in, torch tensors out, on the CPU.

Called by `model` on the device's thread. Every tensor is a contiguous CPU tensor of the dtype
named (float32 unless said otherwise); another raises ValueError, since a kernel compiled anew for
it would hold a step up for seconds. Every result is a new tensor. Row i of a result depends on row
i of the inputs alone, bit for bit, whatever the batch.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from trioserve_kernels import linear, rms_norm as _rms_norm, rope_write_kv as _rope_write_kv
from trioserve_kernels import silu_mul as _silu_mul
from trioserve_kernels.jit import num_threads
from trioserve_kernels.linear import PackedLinear
from trioserve_kernels.paged_attention import cpu as _paged_attention

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "PackedLinear",
    "add_rms_norm",
    "paged_attention",
    "rms_norm",
    "rope_write_kv",
    "silu_mul",
    "warm_up",
]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [rows, h], weight [h] -> [rows, h]."""
    out = torch.empty_like(x)
    _rms_norm.cpu(_array(x), _array(weight), np.float32(eps), out.numpy())
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add x to `residual` [rows, h] in place; the norm of the sum, [rows, h]."""
    out = torch.empty_like(x)
    _rms_norm.cpu_add(_array(x), _array(residual), _array(weight), np.float32(eps), out.numpy())
    return out


def rope_write_kv(
    qkv: Tensor,
    positions: Tensor,
    slots: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Rotated queries [rows, hq, d]; rotated keys and values are written to the pages.

    qkv [rows, (hq + 2*hkv) * d]; positions [rows] int32; slots [rows] int64, each
    page * page_size + offset; cos, sin [max_pos, d/2]; pages [num_pages, hkv, page_size, d];
    q_norm, k_norm [d] norm each head first. Raises IndexError, before it writes, for a slot or a
    position out of range.
    """
    num_kv_heads, head_dim = k_pages.shape[1], k_pages.shape[3]
    num_q_heads = qkv.shape[1] // head_dim - 2 * num_kv_heads
    out = torch.empty((qkv.shape[0], num_q_heads, head_dim))
    _rope_write_kv.cpu(
        _array(qkv),
        _array(positions, torch.int32),
        _array(slots, torch.int64),
        _array(cos),
        _array(sin),
        _array(k_pages),
        _array(v_pages),
        _rope_write_kv.NO_NORM if q_norm is None else _array(q_norm),
        _rope_write_kv.NO_NORM if k_norm is None else _array(k_norm),
        np.float32(eps),
        out.numpy(),
    )
    return out


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    row_sequence: Tensor,
    positions: Tensor,
    scale: float,
) -> Tensor:
    """Row r of q [rows, hq, d] over positions 0..positions[r] of sequence row_sequence[r].

    pages [num_pages, hkv, page_size, d]; page_table [num_seqs, max_pages] int32; row_sequence,
    positions [rows] int32. Rows of one sequence that stand together share the reading of its
    pages. Raises IndexError for a page, position or sequence out of range.
    """
    out = torch.empty_like(q)
    _paged_attention.cpu(
        _array(q),
        _array(k_pages),
        _array(v_pages),
        _array(page_table, torch.int32),
        _array(row_sequence, torch.int32),
        _array(positions, torch.int32),
        scale,
        num_threads(),
        out.numpy(),
    )
    return out


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate_up [rows, 2*i], gate first -> silu(gate) * up, [rows, i]."""
    out = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2))
    _silu_mul.cpu(_array(gate_up), out.numpy())
    return out


def warm_up() -> None:
    """Compile every kernel, or load it from the disk cache, and probe the linear layers.

    Call it once, on the thread that will run the steps, before the first of them.
    """
    linear.safe_rows(1)
    x, weight = torch.ones(1, 16), torch.ones(16)
    rms_norm(x, weight, 1e-6)
    add_rms_norm(x, x.clone(), weight, 1e-6)
    silu_mul(x)
    pages = torch.zeros(1, 1, 1, 4)
    zero = torch.zeros(1, dtype=torch.int32)
    table = torch.ones(1, 2)
    q = rope_write_kv(torch.ones(1, 12), zero, zero.long(), table, table, pages, pages.clone())
    paged_attention(q, pages, pages, zero[None], zero, zero, 1.0)


def _array(tensor: Tensor, dtype: torch.dtype = torch.float32) -> "NDArray[Any]":
    if tensor.dtype != dtype or not tensor.is_contiguous():
        layout = "contiguous" if tensor.is_contiguous() else "non-contiguous"
        raise ValueError(f"a kernel takes a contiguous {dtype} tensor, not a {layout} {tensor.dtype}")
    return tensor.numpy()
