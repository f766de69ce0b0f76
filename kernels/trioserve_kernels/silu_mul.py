"""SiLU of the gate times up, the middle of a Llama feed-forward block."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trioserve_kernels.exp2 import exp2
from trioserve_kernels.jit import kernel

_MINUS_LOG2_E = np.float32(-np.log2(np.e))
_ONE = np.float32(1.0)


def reference(gate_up: Tensor) -> Tensor:
    """[rows, 2*i] float32, gate in the first half of a row -> [rows, i] float32."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


@kernel
def cpu(gate_up: Any, out: Any) -> None:
    """The same on C-contiguous arrays; writes `out` [rows, i]."""
    rows, width = out.shape
    for row in range(rows):
        for i in range(width):
            gate = gate_up[row, i]
            out[row, i] = gate / (_ONE + exp2(gate * _MINUS_LOG2_E)) * gate_up[row, width + i]
