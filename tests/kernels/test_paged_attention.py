"""Paged attention on the CPU against its reference, and the promise that a row is alone."""

import numba
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.paged_case import PagedCase, paged_case
from trioserve.device import ops
from trioserve_kernels.paged_attention.cpu import ROW_BLOCK, TILE
from trioserve_kernels.paged_attention.reference import reference

EDGES = (1, 2, 15, 16, 17, 31, 32, 33, 64, 65)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    ops.warm_up()


def _prefill(sequence: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(sequence, position) for position in range(start, end)]


def _assert_like_reference(case: PagedCase, tolerance: float = 1e-5) -> None:
    result = ops.paged_attention(*case.arguments)
    expected = reference(*case.arguments)
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("page_size", [1, 4, 8, 12, 16, 64])
def test_decode_rows_at_page_and_tile_edges_match_reference(page_size: int) -> None:
    rows = [(sequence, length - 1) for sequence, length in enumerate(EDGES)]
    _assert_like_reference(paged_case(rows, page_size=page_size))


@pytest.mark.parametrize(
    ("num_q_heads", "num_kv_heads", "head_dim"),
    [(9, 3, 64), (4, 4, 32), (8, 1, 128), (2, 1, 80), (4, 2, 12)],
)
def test_grouped_heads_of_any_width_match_reference(
    num_q_heads: int, num_kv_heads: int, head_dim: int
) -> None:
    rows = [*_prefill(0, 20, 45), (1, 0), (2, 33)]
    case = paged_case(rows, num_q_heads=num_q_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    _assert_like_reference(case)


def test_prefill_chunks_and_decode_rows_in_one_batch_match_reference() -> None:
    rows = [*_prefill(0, 0, 17), (1, 40), *_prefill(2, 30, 51), (3, 0), (1, 38), (1, 7)]
    _assert_like_reference(paged_case(rows))


def test_scores_far_apart_give_the_softmax_limit() -> None:
    case = paged_case(_prefill(0, 0, 70))
    case.q.mul_(1000)
    # A score of 1,000 is itself only known to 1e-4.
    _assert_like_reference(case, tolerance=5e-3)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 70), st.integers(1, 20)), min_size=1, max_size=5),
    page_size=st.sampled_from([1, 4, 16, 32]),
    seed=st.integers(0, 9),
)
@settings(max_examples=40, deadline=None)
def test_a_row_is_bit_equal_alone_and_in_any_batch(
    lengths: list[tuple[int, int]], page_size: int, seed: int
) -> None:
    rows = [
        row
        for sequence, (start, count) in enumerate(lengths)
        for row in _prefill(sequence, start, start + count)
    ]
    case = paged_case(rows, page_size=page_size, seed=seed)
    together = ops.paged_attention(*case.arguments)
    for row in range(len(rows)):
        alone = ops.paged_attention(*case.rows([row]).arguments)
        assert torch.equal(together[row], alone[0]), f"row {row}, {rows[row]}"


def test_a_row_is_bit_equal_however_its_prompt_is_chunked() -> None:
    case = paged_case(_prefill(0, 0, 3 * TILE + 5), num_q_heads=9, num_kv_heads=3, head_dim=64)
    whole = ops.paged_attention(*case.arguments)
    for chunk in (1, 3, ROW_BLOCK - 1, ROW_BLOCK, ROW_BLOCK + 1, 16, TILE, 50):
        parts = [
            ops.paged_attention(*case.rows(slice(start, start + chunk)).arguments)
            for start in range(0, len(case.q), chunk)
        ]
        assert torch.equal(torch.cat(parts), whole), f"chunk {chunk}"


def test_a_row_is_bit_equal_in_pages_of_any_size() -> None:
    rows = _prefill(0, 0, 70)
    small, large = (paged_case(rows, page_size=page_size) for page_size in (4, 16))
    assert torch.equal(ops.paged_attention(*small.arguments), ops.paged_attention(*large.arguments))


def test_a_row_is_bit_equal_on_one_thread_and_on_many() -> None:
    case = paged_case([*_prefill(0, 0, 40), (1, 9), (2, 77)])
    many = ops.paged_attention(*case.arguments)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        one = ops.paged_attention(*case.arguments)
    finally:
        numba.set_num_threads(threads)
    assert torch.equal(one, many)


def test_a_row_of_nan_stays_its_own_and_is_seen() -> None:
    case = paged_case([*_prefill(0, 3, 9), (1, 20)])
    clean = ops.paged_attention(*case.arguments)
    case.q[2] = torch.nan
    result = ops.paged_attention(*case.arguments)
    assert result[2].isnan().all()
    others = [0, 1, 3, 4, 5, 6]
    assert torch.equal(result[others], clean[others])


def test_no_rows_give_no_rows() -> None:
    case = paged_case([(0, 3)])
    assert ops.paged_attention(*case.rows(slice(0, 0)).arguments).shape == (0, 6, 16)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("page_table", -1),
        ("page_table", 99),
        ("positions", -1),
        ("positions", 999),
        ("row_sequence", -1),
        ("row_sequence", 1),
    ],
)
def test_an_index_out_of_range_is_refused_before_memory_is_read(field: str, value: int) -> None:
    case = paged_case([(0, 20)])
    getattr(case, field).fill_(value)
    with pytest.raises(IndexError, match=r"outside the page"):
        ops.paged_attention(*case.arguments)


def test_strided_queries_and_doubles_are_refused() -> None:
    case = paged_case(_prefill(0, 0, 4))
    q, *rest = case.arguments
    with pytest.raises(ValueError, match="non-contiguous"):
        ops.paged_attention(q.mT.contiguous().mT, *rest)
    with pytest.raises(ValueError, match="float64"):
        ops.paged_attention(q.double(), *rest)


def test_an_odd_head_width_is_refused() -> None:
    case = paged_case([(0, 3)], head_dim=6)
    with pytest.raises(ValueError, match="multiple of 4"):
        ops.paged_attention(*case.arguments)
