"""For every test: the project's own logging, and threads that leave each other's cores alone."""

from trioserve.device.threads import prepare_threads
from trioserve.logs import configure_logging

configure_logging("warning")
# As the server does, and before anything imports torch: OpenMP's own choice is to spin.
prepare_threads()
