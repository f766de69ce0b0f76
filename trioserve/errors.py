"""The one error tree. Imports no room; `api/errors.py` has the one table to HTTP status."""


class TrioserveError(Exception):
    """Root of everything that trioserve raises on purpose."""


class ConfigError(TrioserveError):
    """A setting, path or model cannot be used. One clear line; the process ends with code 2."""


class RequestError(TrioserveError):
    """The client's request cannot be served as it is.

    `message` is shown as it stands, `param` names the field, `code` is the short string of the
    API's error table (`invalid_value`, `context_length_exceeded`, …).
    """

    def __init__(self, message: str, *, param: str | None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ModelNotFound(TrioserveError):
    """The request names a model that is not served here."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.model = model


class Unavailable(TrioserveError):
    """The engine takes no work now: loading, draining, dead, or its queue is full.

    `code` is the API's nested code, `retry_after_s` the hint given to the client.
    """

    def __init__(self, message: str, *, code: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retry_after_s = retry_after_s


class RequestFailed(TrioserveError):
    """This one request failed inside the engine (for example non-finite logits); others go on."""


class EngineDead(TrioserveError):
    """The driver failed; every open request gets this and the process ends."""


class OutOfPages(TrioserveError):
    """The pool has fewer free pages than a lease asked for; the scheduler asks first."""
