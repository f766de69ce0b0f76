"""For every test: the project's own logging."""

from trioserve.logs import configure_logging

configure_logging("warning")
