"""How many threads compute, and how they wait for each other; settled before torch is imported.

OpenMP and Numba read their environment once, when they are loaded. Imports neither.
"""

import os
import sys

from trioserve.device.memory import ProcessLimits

# A step is hundreds of short parallel loops, and between two of them a thread that sleeps costs
# tens of microseconds to wake. OpenMP's own default spins for milliseconds and takes the event
# loop's core away: with one busy neighbour on 2 cores a step took ten times as long. Spinning not
# at all (OMP_WAIT_POLICY=passive) cost 30 % of a step; this many turns last about as long as the
# work between two loops.
_SPIN_COUNT = 10_000


def prepare_threads(limits: ProcessLimits | None = None) -> int:
    """Set the environment of OpenMP and Numba, unless the user has; the number of CPUs to use.

    Call it before torch is imported, from any thread. Later calls change nothing.
    """
    num_threads = (limits or ProcessLimits()).num_cpus()
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_NUM_THREADS", str(num_threads))
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", str(_SPIN_COUNT))
    if "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", str(num_threads))
    return num_threads
