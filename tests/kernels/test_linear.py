"""Linear layers with float16 weights: the product, and the promise that a row is alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trioserve.device.ops import PackedLinear
from trioserve_kernels.linear import reference, safe_rows

ROOT = Path(__file__).parents[2]
BLOCK = 120  # rows in a block of FBGEMM, whose borders the chunks below lie around


def assert_rows_are_alone(out_features: int, in_features: int) -> None:
    """Rows 0..n-1 of a product have the same bits for every n, and at every place in a batch."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(520, in_features, generator=generator)
    weight = torch.randn(out_features, in_features, generator=generator)
    layer = PackedLinear.from_weight(weight)
    whole = layer(x)
    for rows in (*range(1, 130), 239, 240, 241, 242, 255, 256, 257, 367, 511, 512, 513):
        assert torch.equal(layer(x[:rows]), whole[:rows]), f"{rows} rows"
    for start in (1, 7, 16, 119, 121, 300):
        for rows in (1, 2, 7, 16, 130):
            part = layer(x[start : start + rows])
            assert torch.equal(part, whole[start : start + rows]), f"{rows} rows from {start}"


@pytest.mark.parametrize(
    ("out_features", "in_features"), [(960, 576), (576, 1536), (3, 40), (64, 1100)]
)
@pytest.mark.slow
def test_a_row_is_bit_equal_at_1_to_129_rows_and_at_chunk_borders(
    out_features: int, in_features: int
) -> None:
    assert_rows_are_alone(out_features, in_features)


@pytest.mark.slow
def test_a_row_is_bit_equal_with_the_kernels_of_an_avx2_machine() -> None:
    """FBGEMM's AVX2 tiles of 1 and 2 rows add up otherwise; a newer machine can run them too."""
    script = (
        "from tests.kernels.test_linear import assert_rows_are_alone\n"
        "for shape in ((576, 576), (3, 1040)): assert_rows_are_alone(*shape)\n"
        "from trioserve_kernels.linear import safe_rows\n"
        "print(safe_rows(1), safe_rows(16), safe_rows(32))"
    )
    environment = {**os.environ, "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    # The counts prove that the other kernels ran: padding is needed at 1 and at 32 rows.
    assert done.stdout == "3 16 33\n", done.stderr


def test_padding_is_never_less_than_asked_and_blocks_repeat() -> None:
    for rows in range(1, 3 * BLOCK):
        assert rows <= safe_rows(rows) <= rows + 2
        assert safe_rows(rows + BLOCK) == safe_rows(rows) + BLOCK


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7, 33])
def test_product_and_bias_match_float16_weights_in_float32(rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    weight = (torch.randn(130, 96, generator=generator) * 0.1).to(dtype)
    bias = torch.randn(130, generator=generator).to(dtype)
    x = torch.randn(rows, 96, generator=generator)
    result = PackedLinear.from_weight(weight, bias)(x)
    expected = reference(x, weight, bias.float())
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_weights_below_the_normal_range_of_float16_are_rounded_not_dropped() -> None:
    weight = torch.tensor([[2.0**-20, 3e-6], [2.0**-24, -(2.0**-15)]])
    x = torch.tensor([[2.0**20, 2.0**15]])
    torch.testing.assert_close(PackedLinear.from_weight(weight)(x), reference(x, weight, None))


def test_a_transposed_weight_is_packed_as_it_reads() -> None:
    weight = torch.randn(32, 48).t()
    x = torch.randn(4, 32)
    torch.testing.assert_close(
        PackedLinear.from_weight(weight)(x), reference(x, weight, None), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("value", [65520.0, -1e9, float("inf"), float("nan")])
def test_a_weight_that_float16_cannot_hold_is_refused(value: float) -> None:
    weight = torch.zeros(4, 8)
    weight[2, 3] = value
    with pytest.raises(ValueError, match="does not fit float16"):
        PackedLinear.from_weight(weight)


def test_the_largest_float16_is_held() -> None:
    weight = torch.tensor([[65504.0, -65504.0]])
    assert PackedLinear.from_weight(weight)(torch.tensor([[1.0, 0.5]])).item() == 32752.0


def test_no_rows_give_no_rows() -> None:
    assert PackedLinear.from_weight(torch.ones(5, 8))(torch.empty(0, 8)).shape == (0, 5)
