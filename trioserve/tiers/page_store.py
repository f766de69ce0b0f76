"""`PageStore`: a page file held below a bound, and the order in which its pages are dropped."""

import logging
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from attrs import define, field

from trioserve.tiers.claim import FLAG
from trioserve.tiers.page_file import BLOCK_BYTES, PageFile, Row, Unreadable
from trioserve.tiers.page_index import PageIndex
from trioserve.tiers.page_key import PageKey, Payload

logger = logging.getLogger(__name__)

Item = tuple[PageKey, Payload]

MIN_BYTES = 2**26
"""The least bound that leaves room for pages beside what the database needs for itself."""

_TRANSACTION_BYTES = 2**23
"""Payload in one transaction."""
_TRANSACTION_ROWS = 64
"""Rows deleted or marked as used in one transaction."""
_JOURNAL_BYTES = 2**23
"""Kept free under the bound for the rollback journal, which is there during a transaction."""


@define(eq=False)
class PageCounts:
    """Pages since the start."""

    written: int = 0
    evicted: int = 0
    damaged: int = 0


@define(eq=False)
class PageStore:
    """The pages of one claimed directory, for `StorageTier` alone; made by `open`.

    Every method but `touch` blocks on the disk and raises sqlite3.Error and OSError; after that
    only `close` may be called. One thread at a time; asking the index is safe from any.
    """

    max_bytes: int
    file: PageFile
    counts: PageCounts
    index: PageIndex = field(init=False, factory=PageIndex)
    file_bytes: int = field(init=False, default=0)
    """The size of the file; the journal comes on top, within the bound."""

    @classmethod
    def open(cls, directory: Path, max_bytes: int, counts: PageCounts) -> "PageStore":
        """Open the directory's file, made anew if it is of no use; raises ConfigError too."""
        assert max_bytes >= MIN_BYTES, f"{max_bytes} bytes hold nothing"
        try:
            store = cls._load(directory, max_bytes, counts)
        except Unreadable as error:
            logger.warning("%s: the cache in %s %s: made anew", FLAG, directory, error)
            PageFile.remove(directory)
            store = cls._load(directory, max_bytes, counts)
        try:
            store._shrink()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def _load(cls, directory: Path, max_bytes: int, counts: PageCounts) -> "PageStore":
        store = cls(max_bytes, PageFile.open(directory), counts)
        try:
            store.index.load(store.file.rows())
        except BaseException:
            store.close()
            raise
        return store

    @property
    def limit(self) -> int:
        """The most that the file may hold, in bytes."""
        return self.max_bytes - _JOURNAL_BYTES

    def read(self, keys: Sequence[PageKey]) -> dict[PageKey, bytes]:
        """The payloads of those pages of a prefix that are here; they count as used.

        A page that is not what had been written is deleted.
        """
        found: dict[PageKey, bytes] = {}
        damaged: dict[PageKey, Row] = {}
        for key in keys:
            row = self.index.get(key)
            if row is None:
                continue
            payload = self.file.read(row)
            if payload is None or _checksum(key, payload) != row.checksum:
                damaged[key] = row
            else:
                found[key] = payload
        self._drop_damaged(list(damaged.values()))
        self.index.touch([key for key in keys if key in found])
        return found

    def write(self, items: Sequence[Item]) -> None:
        """Add pages; see `StorageTier.write`."""
        asked = [key for key, _ in items]
        self.index.touch(asked)
        fresh = {key: payload for key, payload in items if key not in self.index}
        for batch in _batches(fresh):
            if not self._make_room(batch, set(asked)):
                break
            rows = [
                self.index.make_row(key, memoryview(payload).nbytes, _checksum(key, payload))
                for key, payload in batch
            ]
            self.file.insert(zip(rows, (payload for _, payload in batch), strict=True))
            self.index.add(rows)
            self.counts.written += len(rows)
            self._shrink()
        # Again, for the order among those just written.
        self.index.touch(asked)
        self._save_used(_TRANSACTION_ROWS)

    def save_all_used(self) -> None:
        """Write down when pages were used last, for the next start.

        While the store is in use a few are written with each `write`. Rejected: with each read,
        which makes a transaction of every hit. What a kill loses has some page evicted early.
        """
        self._save_used(self.index.num_unsaved)

    def close(self) -> None:
        """Close the file and forget its pages."""
        self.index.clear()
        self.file_bytes = 0
        self.file.close()

    def _make_room(self, batch: Sequence[Item], asked: Collection[PageKey]) -> bool:
        """Evict until `batch` fits, but nothing of `asked`; whether it fits then."""
        needed = sum(_stored_bytes(memoryview(payload).nbytes) for _, payload in batch)
        if needed > self.limit:
            return False
        while (excess := self.file.used_bytes + needed - self.limit) > 0:
            if not self._evict(excess, asked):
                return False
        return True

    def _evict(self, num_bytes: int, asked: Collection[PageKey] = ()) -> bool:
        """Delete the pages used longest ago, about `num_bytes` of them; False if none may go."""
        victims = self.index.oldest(num_bytes, asked)
        self._delete(victims)
        self.counts.evicted += len(victims)
        return bool(victims)

    def _delete(self, rows: Sequence[Row]) -> None:
        for begin in range(0, len(rows), _TRANSACTION_ROWS):
            some = rows[begin : begin + _TRANSACTION_ROWS]
            self.file.delete(row.id for row in some)
            self.index.remove(some)

    def _drop_damaged(self, rows: Sequence[Row]) -> None:
        if rows and not self.counts.damaged:
            logger.warning(
                "%s: a page in %s was not what had been written, and is computed anew; if the "
                "number of damaged pages grows, the disk is failing",
                FLAG,
                self.file.path.parent,
            )
        self.counts.damaged += len(rows)
        self._delete(rows)

    def _shrink(self) -> None:
        """Bring the file below the bound, where an older bound or an estimate has left it above."""
        while (excess := self.file.used_bytes - self.limit) > 0:
            if not self._evict(excess):
                break
        self.file_bytes = self.file.file_bytes
        while (excess := self.file_bytes - max(self.limit, self.file.used_bytes)) > 0:
            self.file.shrink(min(excess, _TRANSACTION_BYTES))
            if self.file.file_bytes >= self.file_bytes:
                break  # only in a file whose header is damaged
            self.file_bytes = self.file.file_bytes

    def _save_used(self, max_pages: int) -> None:
        while max_pages > 0:
            used = self.index.take_unsaved(min(max_pages, _TRANSACTION_ROWS))
            if not used:
                break
            self.file.set_used(used)
            max_pages -= len(used)


def _checksum(key: PageKey, payload: Payload) -> int:
    # The key too: a damaged one must not have another page's bytes served.
    return zlib.crc32(payload, zlib.crc32(key))


def _stored_bytes(num_bytes: int) -> int:
    """At least what a payload takes in the file, its share of SQLite's own blocks included."""
    return (num_bytes // (BLOCK_BYTES - 4) + 2) * BLOCK_BYTES


def _batches(items: dict[PageKey, Payload]) -> Iterator[list[Item]]:
    """Parts of `items` of at most `_TRANSACTION_BYTES`, or of one item that is larger."""
    batch: list[Item] = []
    held = 0
    for key, payload in items.items():
        num_bytes = memoryview(payload).nbytes
        if batch and held + num_bytes > _TRANSACTION_BYTES:
            yield batch
            batch, held = [], 0
        batch.append((key, payload))
        held += num_bytes
    if batch:
        yield batch
