"""The one door to Numba: typed decorators with the options that every kernel here shares.

Compiled code is kept on disk beside the source, or in the user's cache when that is read-only, so
only the first start on a machine compiles, for some seconds. `contract` is the one fast-math
freedom given: it fuses a multiply and an add, in vector and scalar code alike. Rejected:
`fastmath=True`, which lets LLVM reorder a sum differently in each place a function is inlined, so
that a row's bits would depend on the batch it is in.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: `range` whose iterations are shared among threads inside a `parallel_kernel`.
parallel_range: type[range] = numba.prange


def kernel(function: _Function) -> _Function:
    """Compile for one thread; releases the GIL."""
    return _compile(function, parallel=False)


def parallel_kernel(function: _Function) -> _Function:
    """Compile so that `parallel_range` is shared among threads; releases the GIL."""
    return _compile(function, parallel=True)


def num_threads() -> int:
    """How many threads a parallel kernel called from this thread will use."""
    return int(numba.get_num_threads())


def set_num_threads(threads: int) -> None:
    """Let parallel kernels called from this thread use so many, or all that Numba started with."""
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


def _compile(function: _Function, *, parallel: bool) -> _Function:
    options = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    # Numba asks for its folder here, once a function; the setting is put back for other users.
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = before or str(_CACHE)
    try:
        compiled: _Function = numba.njit(parallel=parallel, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def _cache_folder() -> Path:
    """A folder named after the text of all kernels.

    Numba recompiles a function when its own file changes, and would go on using code that holds an
    older version of a function inlined from another file.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        digest.update(source.read_bytes())
    return package / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}"


_CACHE = _cache_folder()
