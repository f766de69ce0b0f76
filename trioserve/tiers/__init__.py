"""Stores of computed pages below the device's pool: host memory, then storage.

Called by the engine, off the event loop where a docstring says that a call blocks. A page is one
block of bytes here, found by its `PageKey`, which names everything that its contents depend on.
Pure Python: imports neither torch nor trio, and no room but `errors`.
"""
