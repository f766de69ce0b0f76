"""The one door to the kernels: torch tensors in, torch tensors out, on the CPU.

Called by `model` on the device's thread. Every tensor is a contiguous CPU tensor of the dtype
named (float32 unless said otherwise); another raises ValueError, since a kernel compiled anew for
it would hold a step up for seconds, and so do shapes that do not belong together, since kernels do
not check their bounds. Every result is a new tensor. Row i of a result depends on row i of the
inputs alone, bit for bit, whatever the batch.

The order of import matters: torch comes before Numba, so that both use torch's OpenMP library and
one team of threads.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trioserve_kernels import rms_norm as _rms_norm
from trioserve_kernels import rope_write_kv as _rope_write_kv
from trioserve_kernels import silu_mul as _silu_mul
from trioserve_kernels.jit import num_threads, set_num_threads
from trioserve_kernels.linear import PackedLinear, safe_rows
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
    _require(weight.shape == x.shape[1:])
    out = torch.empty_like(x)
    _rms_norm.cpu(_array(x), _array(weight), np.float32(eps), out.numpy())
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add x to `residual` [rows, h] in place; the norm of the sum, [rows, h]."""
    _require(weight.shape == x.shape[1:] and residual.shape == x.shape)
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
    rows, width = qkv.shape
    num_q_heads = width // head_dim - 2 * num_kv_heads
    _require(num_q_heads > 0 and width % head_dim == 0 and head_dim == 2 * cos.shape[1])
    _require(v_pages.shape == k_pages.shape and sin.shape == cos.shape)
    _require(positions.shape == slots.shape == (rows,))
    _require(all(norm is None or norm.shape == (head_dim,) for norm in (q_norm, k_norm)))
    out = torch.empty((rows, num_q_heads, head_dim))
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
    positions [rows] int32; d is a multiple of 4. Rows of one sequence that stand together share the
    reading of its pages. Raises IndexError for a page, position or sequence out of range.
    """
    rows, num_q_heads, head_dim = q.shape
    if head_dim % 4:
        raise ValueError(f"the width of a head is {head_dim}, not a multiple of 4")
    _require(k_pages.shape[3] == head_dim and v_pages.shape == k_pages.shape)
    _require(num_q_heads % k_pages.shape[1] == 0)
    _require(row_sequence.shape == positions.shape == (rows,) and page_table.ndim == 2)
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
    _require(gate_up.shape[1] % 2 == 0)
    out = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2))
    _silu_mul.cpu(_array(gate_up), out.numpy())
    return out


def warm_up() -> None:
    """Compile every kernel, or load it from the disk cache, and probe the linear layers.

    Call it on the thread that will run the steps, once `torch.set_num_threads` has been called
    there: the kernels take the same number of threads, and the setting belongs to the thread.
    """
    threads = torch.get_num_threads()
    set_num_threads(threads)
    safe_rows(1)
    x, weight = torch.ones(1, 16), torch.ones(16)
    rms_norm(x, weight, 1e-6)
    add_rms_norm(x, x.clone(), weight, 1e-6)
    silu_mul(x)
    pages = torch.zeros(1, 1, 1, 4)
    zero = torch.zeros(1, dtype=torch.int32)
    table = torch.ones(1, 2)
    q = rope_write_kv(torch.ones(1, 12), zero, zero.long(), table, table, pages, pages.clone())
    paged_attention(q, pages, pages, zero[None], zero, zero, 1.0)
    # Numba's first parallel kernel sets OpenMP's thread count for itself, torch's layers included.
    torch.set_num_threads(threads)


def _require(is_consistent: bool) -> None:
    if not is_consistent:
        raise ValueError("the shapes of a kernel's arguments do not belong together")


def _array(tensor: Tensor, dtype: torch.dtype = torch.float32) -> "NDArray[Any]":
    is_contiguous = tensor.is_contiguous()
    if tensor.dtype != dtype or not is_contiguous:
        layout = "contiguous" if is_contiguous else "non-contiguous"
        raise ValueError(f"a kernel takes contiguous {dtype}, not {layout} {tensor.dtype}")
    return tensor.numpy()
