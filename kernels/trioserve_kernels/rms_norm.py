"""Root mean square norm (Zhang & Sennrich 2019, arXiv:1910.07467), alone or after an addition."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trioserve_kernels.jit import kernel

_LANES = 16


def reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[rows, h] float32, weight [h] -> x / sqrt(mean(x**2) + eps) * weight, [rows, h]."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def reference_add(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add x to `residual` in place, and norm the sum."""
    residual.add_(x)
    return reference(residual, weight, eps)


@kernel
def inverse_rms(values: Any, eps: Any) -> Any:
    """1 / sqrt(mean(values**2) + eps) of a contiguous float32 vector.

    The order of the sum is spelled out in lanes: it is vector code without leave to reorder, so a
    row's bits are the same wherever this is inlined.
    """
    lanes = np.zeros(_LANES, np.float32)
    size = values.shape[0]
    whole = size - size % _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            lanes[lane] += values[start + lane] * values[start + lane]
    for lane in range(size - whole):
        lanes[lane] += values[whole + lane] * values[whole + lane]
    total = np.float32(0.0)
    for lane in range(_LANES):
        total += lanes[lane]
    return np.float32(1.0) / np.sqrt(total / np.float32(size) + eps)


@kernel
def cpu(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """`reference` on C-contiguous arrays, eps a float32; writes `out` [rows, h]."""
    for row in range(x.shape[0]):
        scale = inverse_rms(x[row], eps)
        for i in range(x.shape[1]):
            out[row, i] = x[row, i] * scale * weight[i]


@kernel
def cpu_add(x: Any, residual: Any, weight: Any, eps: Any, out: Any) -> None:
    """`reference_add` on C-contiguous arrays, eps a float32; writes `residual` and `out`."""
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            residual[row, i] += x[row, i]
        scale = inverse_rms(residual[row], eps)
        for i in range(x.shape[1]):
            out[row, i] = residual[row, i] * scale * weight[i]
