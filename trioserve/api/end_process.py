"""The exit of a server whose engine is dead, on a stock Hypercorn.

Hypercorn swallows a lifespan that dies after start-up and goes on serving, so the app has to end
the process itself. That is not enough when Hypercorn runs its worker as a child, as it does unless
`--workers 0` is given: the parent waits for the child, loses its exit code and ends with 0, and
whoever restarts servers that failed would not restart this one.
"""

import logging
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """Ends this process with `code`, and Hypercorn's parent process, if there is one, with it.

    Nothing is unwound; logs and streams are flushed. The parent ends by a signal, so that it
    reports a failure too. Where the parent is process 1 of a container it takes no signals from its
    children, and reports 0.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None and _is_hypercorn(parent.pid):
        with suppress(OSError):
            # Hypercorn handles SIGTERM and SIGINT and would end well; SIGKILL would look like the
            # system's own doing, SIGABRT might leave a core file.
            os.kill(parent.pid, signal.SIGUSR1)
    os._exit(code)


def _is_hypercorn(pid: int) -> bool:
    try:
        return b"hypercorn" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
