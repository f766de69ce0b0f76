"""`PageKey` and `KeySpace`: the name of a page that holds across processes and restarts.

A key is the hash of all that the page's keys and values depend on: the model, how it is computed
and laid out, the namespace, and every token from the first to the page's last. Whoever finds a page
under its key need not ask where it came from.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import NewType

from attrs import frozen

PageKey = NewType("PageKey", bytes)
"""32 bytes."""

KEY_BYTES = 32

Payload = bytes | bytearray | memoryview
"""A page's contents on their way into a tier: contiguous, of any item type."""

_FORMAT = 1
"""Raised when the same key would come to mean another payload."""


@frozen
class KeySpace:
    """What all pages of one running server have in common; makes their keys.

    `model` is a fingerprint of the weights' contents, not a name: the same name may bring other
    weights after a restart. `dtype` and `layout` tell how a payload's bytes are to be read, the
    layout with its number of layers, heads and dimensions; `page_size` is in tokens.
    """

    model: str
    dtype: str
    layout: str
    page_size: int

    def root(self, namespace: tuple[str, ...]) -> PageKey:
        """The key that comes before a first page; no page has it itself.

        Namespaces that differ in any string, or in how their text is divided, have different roots.
        What stands in one must keep its meaning across restarts: an adapter's contents, for
        example, and not how often it was loaded.
        """
        parts = (str(_FORMAT), self.model, self.dtype, self.layout, str(self.page_size), *namespace)
        digest = blake2b(digest_size=KEY_BYTES, person=b"trioserve root")
        for part in parts:
            # Each with its length, or ("ab", "c") and ("a", "bc") would be one namespace. Lone
            # surrogates cannot come from a client, but must not raise here either.
            text = part.encode("utf-8", "surrogatepass")
            digest.update(struct.pack("<Q", len(text)))
            digest.update(text)
        return PageKey(digest.digest())

    def following(self, previous: PageKey, token_ids: Sequence[int]) -> PageKey:
        """The key of the page of `token_ids` that comes after the page `previous`, or a root."""
        assert len(token_ids) == self.page_size, f"{len(token_ids)} tokens in a page"
        tokens = struct.pack(f"<{self.page_size}i", *token_ids)
        digest = blake2b(previous, digest_size=KEY_BYTES, person=b"trioserve page")
        digest.update(tokens)
        return PageKey(digest.digest())

    def keys(self, namespace: tuple[str, ...], token_ids: Sequence[int]) -> list[PageKey]:
        """The keys of all whole pages of `token_ids`, in order; some 2 µs a page."""
        keys, key = [], self.root(namespace)
        for begin in range(0, len(token_ids) - self.page_size + 1, self.page_size):
            key = self.following(key, token_ids[begin : begin + self.page_size])
            keys.append(key)
        return keys
