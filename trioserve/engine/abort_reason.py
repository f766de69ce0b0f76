"""`AbortReason`: why a request ended before its last token."""

from enum import StrEnum


class AbortReason(StrEnum):
    """The label of `aborted_requests_total`."""

    CANCELLED = "cancelled"
    """Its client left, whoever noticed that first: the front end, the watch or a failed write."""
    REQUESTED = "requested"
    """`/abort_request`."""
    TIMEOUT = "timeout"
    QUEUE_TIMEOUT = "queue_timeout"
    STALLED = "stalled"
    """Its reader took nothing for --stall-timeout."""
    SHUTDOWN = "shutdown"
    FAILED = "failed"
    """By a fault of ours or of the device's."""
