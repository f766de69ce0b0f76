"""RMS norm, SiLU times up, and rotary embedding with its KV write, against their references."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trioserve.device import ops
from trioserve_kernels import rms_norm, rope_write_kv, silu_mul

EPS = 1e-5
PAGE_SIZE = 4
NUM_PAGES = 8
MAX_POSITION = 50


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    ops.warm_up()


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@given(rows=st.integers(0, 9), width=st.integers(1, 70), scale=st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_norms_match_reference_at_any_width(rows: int, width: int, scale: float) -> None:
    x, weight = _random(rows, width) * scale, _random(width, seed=1)
    expected = rms_norm.reference(x, weight, EPS)
    torch.testing.assert_close(ops.rms_norm(x, weight, EPS), expected, rtol=1e-5, atol=1e-6)

    residual = _random(rows, width, seed=2)
    expected_residual = residual.clone()
    expected = rms_norm.reference_add(x, expected_residual, weight, EPS)
    result = ops.add_rms_norm(x, residual, weight, EPS)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(residual, expected_residual)


def test_a_norm_of_the_sum_is_bit_equal_to_the_sum_then_the_norm() -> None:
    x, residual, weight = _random(3, 577), _random(3, 577, seed=1), _random(577, seed=2)
    total = x + residual
    result = ops.add_rms_norm(x, residual, weight, EPS)
    assert torch.equal(result, ops.rms_norm(total, weight, EPS))


def test_silu_matches_reference_from_the_smallest_to_the_largest_gates() -> None:
    gates = torch.tensor([0.0, -0.0, 1e-30, 1.0, -1.0, 20.0, -20.0, 80.0, -80.0, 1e30, -1e30])
    gate_up = torch.cat((gates, torch.full_like(gates, 3.0))).unsqueeze(0)
    expected = silu_mul.reference(gate_up)
    torch.testing.assert_close(ops.silu_mul(gate_up), expected, rtol=1e-6, atol=1e-6)


@given(rows=st.integers(0, 9), width=st.integers(1, 70))
@settings(max_examples=30, deadline=None)
def test_silu_matches_reference_at_any_width(rows: int, width: int) -> None:
    gate_up = _random(rows, 2 * width) * 5
    expected = silu_mul.reference(gate_up)
    torch.testing.assert_close(ops.silu_mul(gate_up), expected, rtol=1e-5, atol=1e-6)


def _rope_case(rows: int, num_q_heads: int, num_kv_heads: int, head_dim: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(rows)
    angles = _random(MAX_POSITION, head_dim // 2, seed=3)
    shape = (NUM_PAGES, num_kv_heads, PAGE_SIZE, head_dim)
    return {
        "qkv": _random(rows, (num_q_heads + 2 * num_kv_heads) * head_dim),
        "positions": torch.randint(0, MAX_POSITION, (rows,), generator=generator).int(),
        "slots": torch.randperm(NUM_PAGES * PAGE_SIZE, generator=generator)[:rows],
        "cos": angles.cos(),
        "sin": angles.sin(),
        "k_pages": torch.full(shape, torch.nan),
        "v_pages": torch.full(shape, torch.nan),
        "q_norm": None,
        "k_norm": None,
        "eps": EPS,
    }


@pytest.mark.parametrize("norms", [(), ("q_norm", "k_norm")])
@pytest.mark.parametrize(
    ("num_q_heads", "num_kv_heads", "head_dim"), [(9, 3, 64), (2, 2, 6), (4, 1, 80)]
)
@pytest.mark.parametrize("rows", [0, 1, 13])
def test_rope_matches_reference_and_writes_only_its_slots(
    rows: int, num_q_heads: int, num_kv_heads: int, head_dim: int, norms: tuple[str, ...]
) -> None:
    ours, theirs = (_rope_case(rows, num_q_heads, num_kv_heads, head_dim) for _ in range(2))
    for seed, norm in enumerate(norms, start=4):
        ours[norm] = theirs[norm] = _random(head_dim, seed=seed)
    queries = ops.rope_write_kv(**ours)
    torch.testing.assert_close(queries, rope_write_kv.reference(**theirs), rtol=1e-5, atol=1e-5)
    # NaN marks the slots that neither may have touched.
    for pages in ("k_pages", "v_pages"):
        torch.testing.assert_close(ours[pages], theirs[pages], rtol=1e-5, atol=1e-5, equal_nan=True)


def test_values_are_written_bit_for_bit() -> None:
    case = _rope_case(1, 4, 2, 16)
    ops.rope_write_kv(**case)
    page, offset = divmod(int(case["slots"][0]), PAGE_SIZE)
    assert torch.equal(case["v_pages"][page, :, offset].flatten(), case["qkv"][0, -2 * 16 :])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slots", -1),
        ("slots", NUM_PAGES * PAGE_SIZE),
        ("positions", -1),
        ("positions", MAX_POSITION),
    ],
)
def test_a_slot_or_position_out_of_range_is_refused_before_anything_is_written(
    field: str, value: int
) -> None:
    case = _rope_case(3, 2, 1, 8)
    case[field][2] = value
    with pytest.raises(IndexError, match="outside the"):
        ops.rope_write_kv(**case)
    assert case["k_pages"].isnan().all()
    assert case["v_pages"].isnan().all()


def test_a_row_is_bit_equal_alone_and_in_a_batch() -> None:
    x, weight, gate_up = _random(40, 576), _random(576, seed=1), _random(40, 192)
    normed, gated = ops.rms_norm(x, weight, EPS), ops.silu_mul(gate_up)
    case = _rope_case(30, 3, 1, 64)
    case["q_norm"] = case["k_norm"] = _random(64, seed=4)
    queries = ops.rope_write_kv(**case)
    for row in range(30):
        one = slice(row, row + 1)
        assert torch.equal(ops.rms_norm(x[one], weight, EPS), normed[one])
        assert torch.equal(ops.silu_mul(gate_up[one]), gated[one])
        alone = {**_rope_case(30, 3, 1, 64), "q_norm": case["q_norm"], "k_norm": case["k_norm"]}
        for field in ("qkv", "positions", "slots"):
            alone[field] = alone[field][one]
        assert torch.equal(ops.rope_write_kv(**alone), queries[one])
        page, offset = divmod(int(alone["slots"][0]), PAGE_SIZE)
        assert torch.equal(alone["k_pages"][page, :, offset], case["k_pages"][page, :, offset])


def test_strided_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="non-contiguous"):
        ops.silu_mul(_random(4, 16)[:, :8])
    with pytest.raises(ValueError, match="non-contiguous"):
        ops.rms_norm(_random(8, 4).t(), _random(8), EPS)


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        ops.rms_norm(_random(2, 8), _random(9), EPS)
    with pytest.raises(ValueError, match="shape"):
        ops.add_rms_norm(_random(2, 8), _random(3, 8), _random(8), EPS)
