"""Linear layers: float16 weights, float32 arithmetic (FBGEMM), the same bits for any batch.

The product runs on torch's threads, each taking its own columns of the result, so the number of
threads changes no bit either.
"""

from functools import cache

import torch
from torch import Tensor

_FLOAT16_MAX = torch.finfo(torch.float16).max
# FBGEMM cuts the rows into blocks of this many, and each block into tiles.
_BLOCK_ROWS = 120


def reference(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [rows, k] float32, weight [n, k] (rounded to float16), bias [n] -> [rows, n] float32."""
    return torch.nn.functional.linear(x, weight.half().float(), bias)


class PackedLinear:
    """A weight [n, k] and its bias, rounded to float16, packed for FBGEMM.

    Row i of a result depends on row i of x alone, bit for bit, whatever the number of rows.
    """

    def __init__(self, packed: torch.ScriptObject, in_features: int, out_features: int) -> None:
        self._packed = packed
        self.in_features = in_features
        self.out_features = out_features

    @classmethod
    def from_weight(cls, weight: Tensor, bias: Tensor | None = None) -> "PackedLinear":
        """Pack weight [n, k] and bias [n], of any float dtype; the tensors are not kept.

        Raises ValueError for a weight that float16 cannot hold: FBGEMM would clip it silently.
        """
        largest = weight.abs().max().item()
        if not largest <= _FLOAT16_MAX:
            raise ValueError(f"a weight of magnitude {largest:g} does not fit float16")
        out_features, in_features = weight.shape
        packed = torch.ops.quantized.linear_prepack_fp16(
            weight.float().contiguous(), None if bias is None else bias.float()
        )
        return cls(packed, in_features, out_features)

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, k] float32 -> [rows, n] float32."""
        rows = x.shape[0]
        padded = safe_rows(rows)
        if padded == rows:
            return _product(x, self._packed)
        return _product(torch.nn.functional.pad(x, (0, 0, 0, padded - rows)), self._packed)[:rows]


def _product(x: Tensor, packed: torch.ScriptObject) -> Tensor:
    result: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, packed)
    return result


def safe_rows(rows: int) -> int:
    """The least count >= rows at which FBGEMM computes every row the same way."""
    whole = (rows - 1) // _BLOCK_ROWS * _BLOCK_ROWS
    return whole + _safe_rows_in_block()[rows - whole]


@cache
def _safe_rows_in_block() -> tuple[int, ...]:
    """For 0..120 rows, the least safe count that is not smaller; found by trying, in milliseconds.

    FBGEMM's tiles have one code each, and on AVX2 those of 1 and 2 rows add up in another order
    than the rest, so which counts are safe (all of them on AVX-512) depends on the machine. A
    count is safe when its rows equal, bit for bit, those of a full block. Rejected: a multiple of
    3, right for both, but 2 rows in 16 for nothing.
    """
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 64, generator=generator)
    x = torch.randn(_BLOCK_ROWS, 64, generator=generator)
    packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
    expected = _product(x, packed)
    safe = [0] * (_BLOCK_ROWS + 1)
    nearest = _BLOCK_ROWS
    for rows in range(_BLOCK_ROWS, 0, -1):
        if torch.equal(_product(x[:rows], packed), expected[:rows]):
            nearest = rows
        safe[rows] = nearest
    return tuple(safe)
