"""`StorageTier`: pages on disk that outlive the process; bounded, checked, never in the way."""

import logging
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import define, field, frozen

from trioserve.errors import ConfigError
from trioserve.tiers.claim import FLAG, DirectoryClaim, claim, unusable
from trioserve.tiers.page_file import PageFile, Unreadable, is_damage, is_refusal
from trioserve.tiers.page_key import PageKey, Payload
from trioserve.tiers.page_store import PageCounts, PageStore

logger = logging.getLogger(__name__)

_FAILURES = (sqlite3.Error, OSError, MemoryError)


@frozen
class StorageStatistics:
    """A snapshot; the counts are of pages, since the start."""

    is_on: bool
    num_pages: int
    held_bytes: int
    """Of the file."""
    max_bytes: int
    hits: int
    misses: int
    written: int
    evicted: int
    damaged: int
    """Pages that were not what had been written; each was a miss and is gone."""


@define(eq=False)
class StorageTier:
    """Pages in one directory, at most `max_bytes` on disk; made by `open`, ended by `close`.

    `contains_prefix` and `statistics` do no I/O and may be called from any thread. All else blocks,
    on the disk too: call it from a worker thread. Nothing but `open` raises: on a full disk or a
    failing one the tier turns itself off with one line in the log, and then holds nothing. A page
    is read back as it was written or not at all.

    A key names the model and all else that its page depends on (`KeySpace`), so one directory may
    pass from a server of one model to a server of another.
    """

    backend = "sqlite"

    max_bytes: int
    _claim: DirectoryClaim
    _store: PageStore | None = field(init=False, default=None)
    """None when the tier is off or closed."""
    _counts: PageCounts = field(init=False, factory=PageCounts)
    _hits: int = field(init=False, default=0)
    _misses: int = field(init=False, default=0)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)

    @classmethod
    def open(cls, directory: Path, max_bytes: int) -> "StorageTier":
        """Take the directory, and what pages of an earlier run are in it. Blocks.

        `max_bytes` is at least `page_store.MIN_BYTES`. A file of another format, or a damaged one,
        is made anew with a line in the log. Raises ConfigError if another process has the directory
        or the system does not let us use it.
        """
        tier = cls(max_bytes, claim(directory))
        try:
            tier._start()
        except BaseException:
            tier.close()
            raise
        return tier

    def contains_prefix(self, keys: Sequence[PageKey]) -> int:
        """How many of `keys`, counted from the first, are here without a gap.

        A page counted may still be a miss when it is read: it may be damaged, or gone by then.
        """
        store = self._store
        if store is None:
            return 0
        return next((n for n, key in enumerate(keys) if key not in store.index), len(keys))

    def read(self, keys: Sequence[PageKey]) -> list[bytes | None]:
        """The payloads in the order of `keys`, None for a miss; those found count as used."""
        with self._lock:
            found: dict[PageKey, bytes] = {}
            if self._store is not None:
                try:
                    found = self._store.read(keys)
                except _FAILURES as error:
                    self._turn_off(error)
            payloads = [found.get(key) for key in keys]
            num_missed = payloads.count(None)
            self._misses += num_missed
            self._hits += len(keys) - num_missed
            return payloads

    def write(self, items: Sequence[tuple[PageKey, Payload]]) -> int:
        """Add pages, each after those before it in its prefix, and count them all as used.

        Returns how many are new on disk; they are there when this returns, whatever becomes of the
        process. Pages used longest ago make room, and if all do not fit, the first ones are kept:
        a page is of no use without those before it. So follow a write of a prefix' later pages with
        a `touch` of the whole prefix. Other calls wait meanwhile: give it a few at a time.
        """
        with self._lock:
            written_before = self._counts.written
            if self._store is not None:
                try:
                    self._store.write(items)
                except _FAILURES as error:
                    self._turn_off(error)
            return self._counts.written - written_before

    def touch(self, keys: Sequence[PageKey]) -> None:
        """Count the pages of a prefix as used, the first one last, as far as they are here.

        For what a tier above has served, and what has been written in parts. Waits for other calls.
        """
        with self._lock:
            if self._store is not None:
                self._store.index.touch(keys)

    def clear(self) -> None:
        """Forget every page and give the disk space back."""
        with self._lock:
            if self._store is None:
                return
            directory = self._claim.directory
            try:
                self._store.close()
                PageFile.remove(directory)
                self._store = PageStore.open(directory, self.max_bytes, self._counts)
            except (*_FAILURES, Unreadable, ConfigError) as error:
                self._turn_off(error)

    def close(self) -> None:
        """Write down when pages were used and let the directory go; may be called twice."""
        with self._lock:
            if self._store is not None:
                with suppress(*_FAILURES):
                    self._store.save_all_used()
                with suppress(sqlite3.Error):
                    self._store.close()
                self._store = None
            self._claim.release()

    def statistics(self) -> StorageStatistics:
        """The counts now."""
        store = self._store
        return StorageStatistics(
            is_on=store is not None,
            num_pages=0 if store is None else len(store.index),
            held_bytes=0 if store is None else store.file_bytes,
            max_bytes=self.max_bytes,
            hits=self._hits,
            misses=self._misses,
            written=self._counts.written,
            evicted=self._counts.evicted,
            damaged=self._counts.damaged,
        )

    def _start(self) -> None:
        directory = self._claim.directory
        try:
            self._store = PageStore.open(directory, self.max_bytes, self._counts)
        except _FAILURES as error:
            if is_refusal(error):
                raise unusable(directory, getattr(error, "strerror", "") or str(error)) from error
            self._turn_off(error)

    def _turn_off(self, error: Exception) -> None:
        """For good: what failed once would fail at each step, and take a disk's time-out for it."""
        directory, remedy = self._claim.directory, "restart the server when that is mended"
        if self._store is not None:
            with suppress(sqlite3.Error):
                self._store.close()
        if is_damage(error):
            with suppress(OSError):
                PageFile.remove(directory)
            remedy = "the next start begins with an empty one"
        self._store = None
        logger.warning("%s: the cache in %s is off (%s); %s", FLAG, directory, error, remedy)
