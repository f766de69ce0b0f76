"""Paged decode attention in Triton, for NVIDIA GPUs: one program a row and key-value head.

Online softmax as in the CPU form. The query heads of a group are the rows of one matrix, padded to
the 16 that `tl.dot` wants. Arithmetic is float32 whatever the pages are stored in. Right for
prefill rows too, though each of them reads its pages for itself.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

_LOG2_E = float(np.log2(np.e))
_BLOCK = 32  # positions a softmax step takes in
_LEAST_DOT_ROWS = 16


@triton.jit
def decode_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations as its own types
    q,
    k_pages,
    v_pages,
    page_table,
    row_sequence,
    positions,
    out,
    scale_log2,
    max_pages,
    num_q_heads,
    num_kv_heads,
    PAGE_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    length = tl.load(positions + row) + 1
    pages = page_table + tl.load(row_sequence + row) * max_pages

    group = tl.arange(0, PADDED_GROUP)
    dim = tl.arange(0, PADDED_DIM)
    is_dim = dim < HEAD_DIM
    q_at = (row * num_q_heads + kv_head * GROUP + group)[:, None] * HEAD_DIM + dim[None, :]
    is_q = (group < GROUP)[:, None] & is_dim[None, :]
    queries = tl.load(q + q_at, mask=is_q, other=0.0).to(tl.float32) * scale_log2

    maxima = tl.full([PADDED_GROUP], float("-inf"), tl.float32)
    weight_sums = tl.zeros([PADDED_GROUP], tl.float32)
    sums = tl.zeros([PADDED_GROUP, PADDED_DIM], tl.float32)
    for start in range(0, length, BLOCK):
        position = start + tl.arange(0, BLOCK)
        is_seen = position < length
        # A masked slot is never loaded, so whatever lies there cannot leak in as 0 * NaN.
        page = tl.load(pages + position // PAGE_SIZE, mask=is_seen, other=0).to(tl.int64)
        slot = (page * num_kv_heads + kv_head) * PAGE_SIZE + position % PAGE_SIZE
        at = slot[:, None] * HEAD_DIM + dim[None, :]
        is_kv = is_seen[:, None] & is_dim[None, :]
        keys = tl.load(k_pages + at, mask=is_kv, other=0.0).to(tl.float32)
        values = tl.load(v_pages + at, mask=is_kv, other=0.0).to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
        scores = tl.where(is_seen[None, :], scores, float("-inf"))
        largest = tl.maximum(maxima, tl.max(scores, axis=1))
        weights = tl.exp2(scores - largest[:, None])
        shrink = tl.exp2(maxima - largest)
        weight_sums = weight_sums * shrink + tl.sum(weights, axis=1)
        sums = sums * shrink[:, None] + tl.dot(weights, values, input_precision="ieee")
        maxima = largest
    tl.store(out + q_at, sums / weight_sums[:, None], mask=is_q)


def decode(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    row_sequence: Tensor,
    positions: Tensor,
    scale: float,
) -> Tensor:
    """The contract of `reference`; all tensors contiguous and on one device."""
    rows, num_q_heads, _ = q.shape
    num_kv_heads = k_pages.shape[1]
    out = torch.empty_like(q)
    decode_kernel[(rows, num_kv_heads)](
        q,
        k_pages,
        v_pages,
        page_table,
        row_sequence,
        positions,
        out,
        scale * _LOG2_E,
        page_table.shape[1],
        num_q_heads,
        num_kv_heads,
        **constants(num_q_heads, k_pages.shape),
        enable_fp_fusion=True,  # said because its default is about to change
    )
    return out


def constants(num_q_heads: int, pages_shape: torch.Size) -> dict[str, Any]:
    """What `decode_kernel` is compiled for: its arguments in capitals."""
    _, num_kv_heads, page_size, head_dim = pages_shape
    group = num_q_heads // num_kv_heads
    return {
        "PAGE_SIZE": page_size,
        "HEAD_DIM": head_dim,
        "PADDED_DIM": max(_LEAST_DOT_ROWS, triton.next_power_of_2(head_dim)),
        "GROUP": group,
        "PADDED_GROUP": max(_LEAST_DOT_ROWS, triton.next_power_of_2(group)),
        "BLOCK": _BLOCK,
    }
