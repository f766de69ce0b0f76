"""2**x as a few vector instructions, for use inside kernels.

LLVM vectorises the polynomial below; a call of libm's `exp2f` it can only repeat lane by lane.
"""

from typing import Any

import numpy as np

from trioserve_kernels.intrinsics import float_of_bits
from trioserve_kernels.jit import kernel

# Taylor coefficients of 2**f = e**(f ln 2). For |f| <= 1/2 the first one left out is below 6e-9.
_C1, _C2, _C3, _C4, _C5, _C6, _C7 = (
    np.float32(np.log(2.0) ** k / factorial)
    for k, factorial in enumerate((1, 2, 6, 24, 120, 720, 5040), start=1)
)
# Below this a sum with 1 in it does not change; lower and products would be subnormal, hence slow.
_LOWEST = np.float32(-64.0)
_HIGHEST = np.float32(127.0)
# Added and taken away again, this leaves a float32 rounded to an integer.
_ROUNDER = np.float32(1.5 * 2**23)
_ONE = np.float32(1.0)


@kernel
def exp2(x: Any) -> Any:
    """2**x for a float32, to 1e-7 relative; x is clamped to [-64, 127] and NaN stays NaN."""
    # Written so that NaN fails both comparisons and passes on.
    clamped = _LOWEST if x < _LOWEST else x
    clamped = _HIGHEST if clamped > _HIGHEST else clamped
    whole = (clamped + _ROUNDER) - _ROUNDER
    f = clamped - whole
    series = _C6 + f * _C7
    series = _C5 + f * series
    series = _C4 + f * series
    series = _C3 + f * series
    series = _C2 + f * series
    series = _C1 + f * series
    series = _ONE + f * series
    exponent = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23))
    return series * float_of_bits(exponent)
