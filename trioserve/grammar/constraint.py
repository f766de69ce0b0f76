"""`Constraint`: what a request wants its output to be, as it came in."""

import hashlib
from enum import StrEnum

from attrs import frozen


class GrammarKind(StrEnum):
    """How a source is read."""

    JSON_OBJECT = "json_object"
    """One JSON object; there is no source."""
    JSON_SCHEMA = "json_schema"
    """The text of a JSON schema: one document that is valid for it."""
    REGEX = "regex"
    """A pattern for the whole output."""
    EBNF = "ebnf"
    """xgrammar's own grammars, whose root is named `root`."""


@frozen
class Constraint:
    """A grammar that is not compiled yet; equal ones share one compilation."""

    kind: GrammarKind
    source: str = ""

    def digest(self) -> bytes:
        """Equal for equal ones alone (SHA-256)."""
        # Half of a pair may come in as JSON's \ud800, and is no UTF-8.
        source = self.source.encode(errors="surrogatepass")
        return hashlib.sha256(self.kind.encode() + b":" + source).digest()
