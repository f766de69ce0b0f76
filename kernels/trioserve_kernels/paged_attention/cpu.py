"""Paged attention on the CPU: pages read in place, softmax kept up tile by tile.

The softmax is the online one (Milakov & Gimelshein 2018, arXiv:1805.02867), as in FlashAttention
(Dao et al. 2022, arXiv:2205.14135): a running maximum, and sums rescaled when it grows.

A row's bits depend on its query, its keys and values and its position alone. Tiles begin at fixed
positions, whatever the page size, the chunk or the batch; and every loop below works on independent
elements, with each sum in a fixed order, so nothing is left for the compiler to reorder. Several
rows of one sequence share a loaded tile, each with its own arithmetic.
"""

from typing import Any

import numpy as np

from trioserve_kernels.exp2 import exp2
from trioserve_kernels.intrinsics import prefetch, transpose_8x8
from trioserve_kernels.jit import kernel, parallel_kernel, parallel_range

TILE = 32  # positions a softmax step takes in
ROW_BLOCK = 8  # query rows of one sequence that share a loaded tile
_LINE = 16  # float32 values in a cache line
_LOG2_E = np.log2(np.e)
_MINUS_INFINITY = np.float32(-np.inf)
_ZERO = np.float32(0.0)


@kernel
def _copy_rows(source: Any, target: Any) -> None:
    for j in range(target.shape[0]):
        for i in range(target.shape[1]):
            target[j, i] = source[j, i]


@kernel
def _load_tile(
    k_pages: Any,
    v_pages: Any,
    pages: Any,
    head: Any,
    start: Any,
    count: Any,
    keys: Any,
    values: Any,
) -> None:
    """Copy positions start..start+count of one head into keys [d, TILE] and values [TILE, d].

    Up to 7 more columns of keys may be written from unused slots of the last page.
    """
    _, num_heads, page_size, head_dim = k_pages.shape
    is_in_eights = page_size % 8 == 0 and head_dim % 8 == 0
    done = 0
    while done < count:
        page, offset = pages[(start + done) // page_size], (start + done) % page_size
        run = min(page_size - offset, count - done)
        first = ((page * num_heads + head) * page_size + offset) * head_dim
        _copy_rows(v_pages[page, head, offset : offset + run], values[done : done + run])
        if is_in_eights:
            for j in range(0, run, 8):
                for i in range(0, head_dim, 8):
                    at = first + j * head_dim + i
                    transpose_8x8(k_pages, at, head_dim, keys, i * TILE + done + j, TILE)
        else:
            for j in range(run):
                for i in range(head_dim):
                    keys[i, done + j] = k_pages[page, head, offset + j, i]
        done += run


@kernel
def _prefetch_tile(stored: Any, pages: Any, head: Any, start: Any, end: Any) -> None:
    """Ask for the pages of a tile to come: they lie anywhere, so no hardware foresees them."""
    _, num_heads, page_size, head_dim = stored.shape
    for position in range(start, min(start + TILE, end), page_size):
        first = (pages[position // page_size] * num_heads + head) * page_size * head_dim
        for i in range(0, page_size * head_dim, _LINE):
            prefetch(stored, first + i)


@kernel
def _score_tile(query: Any, keys: Any, count: Any, scores: Any) -> Any:
    """Dot products of the query with the tile's keys; returns the largest of the first `count`."""
    for j in range(TILE):
        scores[j] = _ZERO
    for i in range(0, query.shape[0], 4):
        q0, q1, q2, q3 = query[i], query[i + 1], query[i + 2], query[i + 3]
        for j in range(TILE):
            scores[j] = (
                scores[j]
                + q0 * keys[i, j]
                + q1 * keys[i + 1, j]
                + q2 * keys[i + 2, j]
                + q3 * keys[i + 3, j]
            )
    for j in range(count, TILE):
        scores[j] = _MINUS_INFINITY
    largest = _MINUS_INFINITY
    for j in range(8):
        a = max(max(scores[j], scores[j + 8]), max(scores[j + 16], scores[j + 24]))
        largest = max(largest, a)
    return largest


@kernel
def _add_values(weights: Any, values: Any, count: Any, out: Any) -> None:
    """out [d] += weights[j] * values[j], j in order, in fours to load and store `out` less."""
    whole = count - count % 4
    for j in range(0, whole, 4):
        w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        for i in range(out.shape[0]):
            out[i] = (
                out[i]
                + w0 * values[j, i]
                + w1 * values[j + 1, i]
                + w2 * values[j + 2, i]
                + w3 * values[j + 3, i]
            )
    for j in range(whole, count):
        for i in range(out.shape[0]):
            out[i] = out[i] + weights[j] * values[j, i]


@kernel
def _attend_block(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    pages: Any,
    positions: Any,
    kv_head: Any,
    scale: Any,
    out: Any,
) -> None:
    """Rows of one sequence, q [rows, hq, d] -> out, for the query heads of one key-value head."""
    num_rows, num_heads, head_dim = q.shape
    group = num_heads // k_pages.shape[1]
    queries = np.empty((num_rows * group, head_dim), np.float32)
    sums = np.zeros((num_rows * group, head_dim), np.float32)
    weight_sums = np.zeros((num_rows * group, TILE), np.float32)
    maxima = np.full(num_rows * group, _MINUS_INFINITY, np.float32)
    keys = np.empty((head_dim, TILE), np.float32)
    values = np.empty((TILE, head_dim), np.float32)
    weights = np.empty(TILE, np.float32)
    for row in range(num_rows):
        for g in range(group):
            for i in range(head_dim):
                queries[row * group + g, i] = q[row, kv_head * group + g, i] * scale
    length = positions.max() + 1
    for start in range(0, length, TILE):
        _load_tile(k_pages, v_pages, pages, kv_head, start, min(TILE, length - start), keys, values)
        _prefetch_tile(k_pages, pages, kv_head, start + TILE, length)
        _prefetch_tile(v_pages, pages, kv_head, start + TILE, length)
        for row in range(num_rows):
            count = min(TILE, positions[row] + 1 - start)
            if count <= 0:
                continue
            for which in range(row * group, (row + 1) * group):
                largest = _score_tile(queries[which], keys, count, weights)
                if largest > maxima[which]:
                    shrink = exp2(maxima[which] - largest)
                    maxima[which] = largest
                    for j in range(TILE):
                        weight_sums[which, j] *= shrink
                    for i in range(head_dim):
                        sums[which, i] *= shrink
                largest = maxima[which]
                for j in range(TILE):
                    weights[j] = exp2(weights[j] - largest)
                for j in range(TILE):
                    weight_sums[which, j] += weights[j]
                _add_values(weights, values, count, sums[which])
    for row in range(num_rows):
        for g in range(group):
            total = _ZERO
            for j in range(TILE):
                total += weight_sums[row * group + g, j]
            for i in range(head_dim):
                out[row, kv_head * group + g, i] = sums[row * group + g, i] / total


@kernel
def _row_blocks(row_sequence: Any, block_starts: Any) -> Any:
    """Cut the rows into runs of one sequence, at most ROW_BLOCK long; returns how many."""
    num_blocks = 0
    for row in range(row_sequence.shape[0]):
        is_new = row == 0 or row_sequence[row] != row_sequence[row - 1]
        if is_new or row - block_starts[num_blocks - 1] == ROW_BLOCK:
            block_starts[num_blocks] = row
            num_blocks += 1
    block_starts[num_blocks] = row_sequence.shape[0]
    return num_blocks


@parallel_kernel
def cpu(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    page_table: Any,
    row_sequence: Any,
    positions: Any,
    scale: Any,
    num_threads: Any,
    out: Any,
) -> None:
    """`reference` on C-contiguous arrays; head_dim is a multiple of 4. Writes `out`.

    Raises IndexError, before it reads a page, for a page, position or sequence out of range.
    """
    num_rows = q.shape[0]
    num_pages, num_kv_heads, page_size, _ = k_pages.shape
    block_starts = np.empty(num_rows + 1, np.int64)
    num_blocks = _row_blocks(row_sequence, block_starts)
    _check_pages(page_table, row_sequence, positions, page_size, num_pages)
    scale_log2 = np.float32(scale * _LOG2_E)
    num_items = num_blocks * num_kv_heads
    # Dealt out like cards: later blocks of a chunk see more keys, so runs would be uneven.
    for thread in parallel_range(num_threads):
        for item in range(thread, num_items, num_threads):
            block, kv_head = item // num_kv_heads, item % num_kv_heads
            first, end = block_starts[block], block_starts[block + 1]
            _attend_block(
                q[first:end],
                k_pages,
                v_pages,
                page_table[row_sequence[first]],
                positions[first:end],
                kv_head,
                scale_log2,
                out[first:end],
            )


@kernel
def _check_pages(
    page_table: Any, row_sequence: Any, positions: Any, page_size: Any, num_pages: Any
) -> None:
    for row in range(positions.shape[0]):
        sequence, position = row_sequence[row], positions[row]
        if sequence < 0 or sequence >= page_table.shape[0]:
            raise IndexError("a row's sequence is outside the page table")
        if position < 0 or position >= page_table.shape[1] * page_size:
            raise IndexError("a row's position is outside the page table")
        for i in range(position // page_size + 1):
            if page_table[sequence, i] < 0 or page_table[sequence, i] >= num_pages:
                raise IndexError("a page table entry is outside the pages")
