"""What can be wrong with a client's grammar."""

from trioserve.errors import TrioserveError


class GrammarError(TrioserveError):
    """A schema, pattern or grammar that cannot be enforced; `detail` says why, in one line.

    The API puts the parameter's name before it.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


TOO_COMPLEX = "grammar is too complex"
