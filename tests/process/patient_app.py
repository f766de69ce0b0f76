"""`trioserve serve …` with the default model, whose end waits longer for the device's thread.

Where that thread imports torch, a busy machine needs more than the usual limit, after which the
interpreter ends around it and says so.
"""

import trioserve.hosting
from trioserve.cli import main

trioserve.hosting.THREAD_END_S = 100.0

if __name__ == "__main__":
    main()
