"""Where steps run: a thread on the CPU now, CUDA streams later, behind the `Device` protocol.

Called by the engine's driver (submit, wait) and, through `ops.py`, by the model. The only room
that may import cuda-python or `trioserve_kernels`. Imports no room but `core` and `errors`.
"""
