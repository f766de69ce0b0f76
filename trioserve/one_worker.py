"""Refuses a second Hypercorn worker: each would hold its own engine and copy of the model."""

import fcntl
import multiprocessing
import os
import tempfile
from pathlib import Path

from trioserve.errors import ConfigError


class SecondWorker(ConfigError):
    """Another worker of the same Hypercorn has the engine."""


_held: list[int] = []
"""Descriptors of the lock; held until the process ends, which lets the lock go."""


def require_one_worker() -> None:
    """Raise SecondWorker if another worker of the same Hypercorn has called this.

    Workers know nothing of each other but their parent, so the lock is named after it. Without a
    parent (`--workers 0`, `trioserve serve`) there is one process and nothing to refuse.
    """
    parent = multiprocessing.parent_process()
    if parent is None or _held:
        return
    name = f"trioserve-{os.getuid()}-{parent.pid}.lock"
    descriptor = os.open(Path(tempfile.gettempdir()) / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SecondWorker(
            "Hypercorn was started with more than one worker, and each would load its own model; "
            "use one worker (-w 1) and run replicas behind a router instead"
        ) from None
    _held.append(descriptor)
