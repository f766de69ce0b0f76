"""Incremental detokenization: from token ids to text, one token at a time.

Promise: no text ends inside a character, no U+FFFD stands for a character that a later token
completes, and the joined pieces equal the decoding of all ids at once. Both forms work in a window
of constant size, so a token costs the same however long the text is, bytes that never become a
character included.

Rejected: `tokenizers.decoders.DecodeStream`. It waits for as long as the text ends in U+FFFD, so a
run of invalid bytes shows nothing and is decoded again in full for each token, and it has no way to
ask for what is still held back at the end.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from tokenizers import Tokenizer as Backend

    from trioserve.text.token_bytes import TokenBytes

_REPLACEMENT = "\ufffd"


class Detokenizer(Protocol):
    """One text in the making. Not shared; `Tokenizer.new_detokenizer` makes one."""

    own_offset: int
    """Characters that bytes before the last token fed become, now that it has shown them to be no
    part of its first character: its own text begins after them. Nearly always 0."""

    @property
    def num_pending(self) -> int:
        """Characters that what is held back becomes, if all tokens to come leave it alone: 1 for an
        unfinished one."""
        ...

    def feed(self, token_id: int) -> str:
        """The text that this token completes; often the token's own, sometimes empty."""
        ...

    def flush(self) -> str:
        """What is still held back once no token will come: empty, or an unfinished character as
        U+FFFD. Nothing may be fed afterwards."""
        ...


class ByteDetokenizer:
    """For tokenizers whose tokens are bytes: Python's own incremental UTF-8 decoder does the work.

    At most three bytes are held back. Bytes that cannot become a character turn into U+FFFD as soon
    as that is certain, by the Unicode rule (one for each maximal part), unfinished ones at the end
    into one. The one difference from decoding everything at once: a byte-fallback tokenizer's
    library marks each byte of a run with a fault in it, valid characters too; here those stay.
    """

    def __init__(self, token_bytes: TokenBytes, skipped_ids: AbstractSet[int]) -> None:
        self._token_bytes = token_bytes
        self._skipped_ids = skipped_ids
        self._num_spaces_to_strip = token_bytes.num_stripped_spaces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = b""
        self.own_offset = 0

    @property
    def num_pending(self) -> int:
        return len(self._pending.decode(errors="replace")) if self._pending else 0

    def feed(self, token_id: int) -> str:
        self.own_offset = 0
        if token_id in self._skipped_ids:
            return ""
        token_bytes = self._token_bytes.get(token_id)
        if self._pending and token_bytes:
            # Up to one and with its first byte: one character if that byte goes on with it.
            so_far = (self._pending + token_bytes[:1]).decode(errors="replace")
            self.own_offset = len(so_far) - 1
        text = self._decoder.decode(token_bytes)
        self._pending = self._decoder.getstate()[0]
        return self._strip(text) if self._num_spaces_to_strip and text else text

    def flush(self) -> str:
        self._pending = b""
        return self._decoder.decode(b"", final=True)

    def _strip(self, text: str) -> str:
        num_stripped = 0
        while (
            num_stripped < self._num_spaces_to_strip
            and text[num_stripped : num_stripped + 1] == " "
        ):
            num_stripped += 1
        is_all_stripped = num_stripped == len(text)
        self._num_spaces_to_strip -= num_stripped if is_all_stripped else self._num_spaces_to_strip
        return text[num_stripped:]


class WindowDetokenizer:
    """For every other decoder: the difference between two decodings of the last few tokens.

    The window is the tokens of the last piece shown, as context for spaces and word borders, and
    those after it. Text that ends in U+FFFD waits for the rest of its character, for at most
    `MAX_PENDING` tokens.
    """

    # A character has at most four bytes, so at most four tokens can share one.
    MAX_PENDING = 4

    def __init__(self, backend: Backend, skipped_ids: AbstractSet[int]) -> None:
        self._backend = backend
        self._skipped_ids = skipped_ids
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []
        # Tokens that wait together share all of their text.
        self.own_offset = 0

    @property
    def num_pending(self) -> int:
        return 1 if self._pending else 0

    def feed(self, token_id: int) -> str:
        if token_id in self._skipped_ids:
            return ""
        self._pending.append(token_id)
        text = self._new_text()
        if text.endswith(_REPLACEMENT) and len(self._pending) < self.MAX_PENDING:
            return ""
        if text:
            self._context = self._pending
            self._context_text = self._decode(self._context)
        else:
            # A token without text yet (a lone word border) is context for the next one too, but
            # only so far: the window stays constant.
            self._context = (self._context + self._pending)[-self.MAX_PENDING :]
            self._context_text = self._decode(self._context)
        self._pending = []
        return text

    def flush(self) -> str:
        text = self._new_text()
        self._pending = []
        return text

    def _new_text(self) -> str:
        return self._decode(self._context + self._pending)[len(self._context_text) :]

    def _decode(self, token_ids: list[int]) -> str:
        # Special ids that are not to be shown never enter the window.
        return self._backend.decode(token_ids, skip_special_tokens=False)
