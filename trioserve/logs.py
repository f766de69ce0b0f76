"""Logging set-up: one line an event on standard error, ours and the libraries' alike."""

import logging
import sys

import structlog

_SHARED: list[structlog.typing.Processor] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
]


def configure_logging(level: str) -> None:
    """Send structlog and standard logging to standard error. Called once, at start."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Plain: the pretty form prints every local, weights and prompts among them, and
                # takes seconds in which nothing is served.
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(),
                    pad_event_to=0,
                    sort_keys=False,
                    exception_formatter=structlog.dev.plain_traceback,
                ),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("trioserve").setLevel(level.upper())
