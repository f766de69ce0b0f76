"""The embedded stores that `bench/storage_engines.py` compares, and the pages that it keeps."""

import importlib
import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

Item = tuple[bytes, bytes]

_SQLITE_PAGE = 16_384


class Store(Protocol):
    """A store of pages; every call that changes it is one transaction."""

    def write(self, items: Sequence[Item]) -> None:
        """Adds or replaces pages."""

    def replace(self, old: Sequence[bytes], items: Sequence[Item]) -> None:
        """Deletes some pages and adds others."""

    def read(self, key: bytes) -> bytes | None:
        """A page, None if it is not there."""

    def keys(self) -> list[bytes]:
        """Every key."""

    def close(self) -> None:
        """Everything is in the kernel's hands after this."""


class SqliteStore:
    """Keys and payloads in two tables: the list of keys is read without the payloads."""

    def __init__(self, directory: Path, journal: str) -> None:
        self._db = sqlite3.connect(directory / "pages.sqlite", isolation_level=None)
        for pragma in (
            f"page_size={_SQLITE_PAGE}",
            "auto_vacuum=incremental",
            "locking_mode=exclusive",
            f"journal_mode={journal}",
            "synchronous=normal",
            "secure_delete=off",
            f"wal_autocheckpoint={2**23 // _SQLITE_PAGE}",
        ):
            self._db.execute(f"PRAGMA {pragma}")
        with self._db:
            self._db.execute("CREATE TABLE IF NOT EXISTS page(id INTEGER PRIMARY KEY, key UNIQUE)")
            self._db.execute("CREATE TABLE IF NOT EXISTS payload(id INTEGER PRIMARY KEY, bytes)")
        self._ids: dict[bytes, int] = dict(self._db.execute("SELECT key, id FROM page"))
        self._next = max(self._ids.values(), default=0) + 1

    def write(self, items: Sequence[Item]) -> None:
        self.replace([key for key, _ in items if key in self._ids], items)

    def replace(self, old: Sequence[bytes], items: Sequence[Item]) -> None:
        # Two transactions: what one frees and fills again goes through the rollback journal.
        self._db.execute("BEGIN IMMEDIATE")
        for key in old:
            number = self._ids.pop(key)
            self._db.execute("DELETE FROM page WHERE id = ?", (number,))
            self._db.execute("DELETE FROM payload WHERE id = ?", (number,))
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")
        for key, value in items:
            self._ids[key] = self._next
            self._db.execute("INSERT INTO page VALUES (?, ?)", (self._next, key))
            self._db.execute("INSERT INTO payload VALUES (?, ?)", (self._next, value))
            self._next += 1
        self._db.execute("COMMIT")

    def read(self, key: bytes) -> bytes | None:
        if key not in self._ids:
            return None
        with self._db.blobopen("payload", "bytes", self._ids[key], readonly=True) as blob:
            return blob.read()

    def keys(self) -> list[bytes]:
        return list(self._ids)

    def close(self) -> None:
        self._db.close()


class LmdbStore:
    """Memory-mapped reads; `metasync=False` may undo the last transaction, never harm others."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        lmdb: Any = importlib.import_module("lmdb")
        self._env = lmdb.open(str(directory), map_size=limit_bytes, metasync=False)

    def write(self, items: Sequence[Item]) -> None:
        self.replace((), items)

    def replace(self, old: Sequence[bytes], items: Sequence[Item]) -> None:
        with self._env.begin(write=True) as transaction:
            for key in old:
                transaction.delete(key)
            for key, value in items:
                transaction.put(key, value)

    def read(self, key: bytes) -> bytes | None:
        with self._env.begin() as transaction:
            value: bytes | None = transaction.get(key)
        return value

    def keys(self) -> list[bytes]:
        with self._env.begin() as transaction:
            return list(transaction.cursor().iternext(keys=True, values=False))

    def close(self) -> None:
        self._env.close()


class RocksStore:
    """Values in blob files of their own, which a compaction collects when they are half dead."""

    def __init__(self, directory: Path) -> None:
        self._rocks: Any = importlib.import_module("rocksdict")
        options = self._rocks.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(self._rocks.DBCompressionType.none())
        options.set_enable_blob_files(True)
        options.set_min_blob_size(4096)
        options.set_blob_file_size(2**25)
        options.set_enable_blob_gc(True)
        options.set_blob_gc_age_cutoff(0.5)
        options.set_blob_gc_force_threshold(0.5)
        options.set_write_buffer_size(2**25)
        self._db = self._rocks.Rdict(str(directory), options)

    def write(self, items: Sequence[Item]) -> None:
        self.replace((), items)

    def replace(self, old: Sequence[bytes], items: Sequence[Item]) -> None:
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key in old:
            batch.delete(key)
        for key, value in items:
            batch.put(key, value)
        self._db.write(batch)

    def read(self, key: bytes) -> bytes | None:
        value: bytes | None = self._db.get(key)
        return value

    def keys(self) -> list[bytes]:
        return list(self._db.keys())

    def close(self) -> None:
        self._db.close()


def make_store(engine: str, directory: Path, limit_bytes: int) -> Store:
    """The store of that name; raises KeyError for another name, ImportError if not installed."""
    if engine == "rocksdb":
        return RocksStore(directory)
    if engine == "lmdb":
        return LmdbStore(directory, limit_bytes)
    return SqliteStore(directory, {"sqlite": "truncate", "sqlite-wal": "wal"}[engine])


@frozen
class Job:
    """What a phase's process needs; it crosses the process border."""

    engine: str
    directory: Path
    num_pages: int
    page_bytes: int
    batch_pages: int
    seed: int

    @property
    def limit_bytes(self) -> int:
        """The bound that the store is told: room for the pages and as much again."""
        return 2 * self.num_pages * self.page_bytes + 2**26

    def open(self) -> Store:
        """The store of this job's directory."""
        return make_store(self.engine, self.directory, self.limit_bytes)

    def batches(self, first: int, num_pages: int) -> Iterator[range]:
        """Page numbers from `first`, in batches."""
        for start in range(first, first + num_pages, self.batch_pages):
            yield range(start, min(start + self.batch_pages, first + num_pages))


@frozen
class Pages:
    """Page number n, the same in every process: bytes that do not compress."""

    base: bytes
    page_bytes: int

    @classmethod
    def of(cls, job: Job) -> "Pages":
        """The pages of a job."""
        return cls(random.Random(job.seed).randbytes(job.page_bytes + 4096), job.page_bytes)

    def items(self, numbers: Sequence[int]) -> list[tuple[bytes, bytes]]:
        """Keys and values."""
        return [(key_of(number), self.value(number)) for number in numbers]

    def value(self, number: int) -> bytes:
        """The payload of page `number`."""
        start = number % 4096
        return number.to_bytes(8, "little") + self.base[start + 8 : start + self.page_bytes]


def key_of(number: int) -> bytes:
    """Spread like hashes, so that no engine gains from their order."""
    return random.Random(number).randbytes(32)
