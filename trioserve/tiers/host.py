"""`HostTier`: copies of pages in the host's memory, the least recently used dropped first."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from attrs import define, field, frozen

from trioserve.tiers.page_key import PageKey, Payload


@frozen
class HostStatistics:
    """A snapshot; the counts are since the start."""

    num_pages: int
    held_bytes: int
    max_bytes: int
    hits: int
    misses: int
    evicted: int
    """Dropped for want of room; a page that was discarded is not counted."""


@define(eq=False)
class HostTier:
    """At most `max_bytes` of payloads; 0 holds nothing.

    Any thread may call any method: each takes one lock for as long as a dictionary needs, and
    copies outside it. What is held beside the payloads is some 300 bytes a page.
    """

    max_bytes: int
    _pages: OrderedDict[PageKey, bytes] = field(init=False, factory=OrderedDict)
    """The least recently used first."""
    _held_bytes: int = field(init=False, default=0)
    _hits: int = field(init=False, default=0)
    _misses: int = field(init=False, default=0)
    _evicted: int = field(init=False, default=0)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)

    def put(self, key: PageKey, payload: Payload) -> bool:
        """Keep a copy of `payload`; it becomes the most recently used. False if it cannot fit.

        A buffer that may change afterwards is copied, `bytes` need not be. A key always has the
        same payload, so one that is held is only marked as used.
        """
        copy = bytes(payload)
        if len(copy) > self.max_bytes:
            return False
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return True
            while self._held_bytes + len(copy) > self.max_bytes:
                _, evicted = self._pages.popitem(last=False)
                self._held_bytes -= len(evicted)
                self._evicted += 1
            self._pages[key] = copy
            self._held_bytes += len(copy)
        return True

    def get(self, key: PageKey) -> bytes | None:
        """The payload, which becomes the most recently used; None if it is not here."""
        with self._lock:
            payload = self._pages.get(key)
            if payload is None:
                self._misses += 1
            else:
                self._hits += 1
                self._pages.move_to_end(key)
        return payload

    def contains(self, key: PageKey) -> bool:
        """Whether the page is here; uses nothing and counts nothing."""
        return key in self._pages

    def contains_prefix(self, keys: Sequence[PageKey]) -> int:
        """How many of `keys`, counted from the first, are here without a gap."""
        return next((n for n, key in enumerate(keys) if key not in self._pages), len(keys))

    def touch(self, keys: Sequence[PageKey]) -> None:
        """Count the pages of a prefix as used, the first one last, as far as they are here.

        A page is of no use without those before it, so these have to be evicted after it.
        """
        with self._lock:
            for key in reversed(keys):
                if key in self._pages:
                    self._pages.move_to_end(key)

    def discard(self, key: PageKey) -> None:
        """Forget the page, if it is here."""
        with self._lock:
            self._held_bytes -= len(self._pages.pop(key, b""))

    def clear(self) -> None:
        """Forget every page."""
        with self._lock:
            self._pages.clear()
            self._held_bytes = 0

    def statistics(self) -> HostStatistics:
        """The counts now."""
        with self._lock:
            return HostStatistics(
                num_pages=len(self._pages),
                held_bytes=self._held_bytes,
                max_bytes=self.max_bytes,
                hits=self._hits,
                misses=self._misses,
                evicted=self._evicted,
            )

    def check(self) -> None:
        """Assert that the bytes counted are the bytes held, within the bound."""
        with self._lock:
            held = sum(len(payload) for payload in self._pages.values())
            assert held == self._held_bytes, f"{held} bytes held, {self._held_bytes} counted"
            assert held <= self.max_bytes, f"{held} bytes held, at most {self.max_bytes} allowed"
