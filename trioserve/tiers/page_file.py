"""`PageFile`: the SQLite database of the storage tier, and nothing but its statements.

Two tables, because SQLite writes a row anew whenever one of its columns changes: `page` has a short
row for each page, `payload` the bytes. docs/decisions/cache-storage.md has the measurements that
the engine and its settings were chosen by.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, frozen

from trioserve.errors import ConfigError
from trioserve.tiers.claim import FLAG, open_private
from trioserve.tiers.page_key import KEY_BYTES, PageKey, Payload

FILE_NAME = "trioserve-cache.sqlite"
BLOCK_BYTES = 16_384
"""SQLite's page: the unit in which the file grows."""

_APPLICATION_ID = 0x7472696F
_FORMAT = 1
"""Raised when the tables change; the file of another format is made anew."""

_SETTINGS = (
    f"page_size={BLOCK_BYTES}",
    "auto_vacuum=incremental",  # or a file could never give back what it took
    "locking_mode=exclusive",
    # A new page's bytes go into the file once. A write-ahead log writes them twice.
    "journal_mode=truncate",
    "synchronous=normal",
    # Some builds overwrite what is deleted with zeros, which writes every page again.
    "secure_delete=off",
)
_TABLES = (
    """
    CREATE TABLE page(
        id INTEGER PRIMARY KEY, key BLOB NOT NULL,
        num_bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, used INTEGER NOT NULL
    )
    """,
    "CREATE TABLE payload(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_FORMAT}",
)

_REFUSAL = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_FORMAT,
}


class Unreadable(Exception):
    """The file is ours and of no use; its text says why, as in "the cache …". A new one is."""


@frozen
class Row:
    """A page without its bytes."""

    id: int
    key: PageKey
    num_bytes: int
    checksum: int
    used: int
    """Larger means used later."""

    @classmethod
    def of(cls, key: object, *numbers: object) -> "Row":
        """A row as SQLite gives it, which has values of any type if it is damaged.

        Raises Unreadable for those, and for numbers that cannot be counted on from.
        """
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise Unreadable("is damaged")
        number, num_bytes, checksum, used = (_sound(each) for each in numbers)
        return cls(number, PageKey(key), num_bytes, checksum, used)


@define(eq=False)
class PageFile:
    """The open database. All methods block and raise sqlite3.Error; one thread at a time."""

    path: Path
    _db: sqlite3.Connection

    @classmethod
    def open(cls, directory: Path) -> "PageFile":
        """Open the file or make it; the caller holds the directory's claim.

        A transaction that was cut short by the process's death is undone here. Raises Unreadable,
        ConfigError for a database that is not ours, OSError and sqlite3.Error.
        """
        path = directory / FILE_NAME
        os.close(open_private(path))  # SQLite would let others read it
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.text_factory = bytes  # there is no text in it but by damage, and that may not decode
        try:
            for setting in _SETTINGS:
                db.execute(f"PRAGMA {setting}")
            file = cls(path, db)
            if file._number("schema_version") == 0:
                with file._transaction():
                    for statement in _TABLES:
                        db.execute(statement)
            elif file._number("application_id") != _APPLICATION_ID:
                raise ConfigError(
                    f"{FLAG}: {path} is not a cache of trioserve; name another directory"
                )
            elif file._number("user_version") != _FORMAT:
                raise Unreadable("was written by another version of trioserve")
        except BaseException as error:
            db.close()
            if is_damage(error):
                raise Unreadable("is damaged") from error
            raise
        return file

    @staticmethod
    def remove(directory: Path) -> None:
        """Delete the files, which no one has open. Raises OSError."""
        for suffix in ("", "-journal"):
            (directory / f"{FILE_NAME}{suffix}").unlink(missing_ok=True)

    @property
    def used_bytes(self) -> int:
        """Bytes of the file that hold something."""
        return BLOCK_BYTES * (self._number("page_count") - self._number("freelist_count"))

    @property
    def file_bytes(self) -> int:
        """The file's size."""
        return BLOCK_BYTES * self._number("page_count")

    def rows(self) -> list[Row]:
        """Every page, the least recently used first. Raises Unreadable too."""
        columns = "key, id, num_bytes, checksum, used"
        try:
            rows = [
                Row.of(*row) for row in self._db.execute(f"SELECT {columns} FROM page ORDER BY id")
            ]
            ((num_payloads,),) = self._db.execute("SELECT count(*) FROM payload")
        except sqlite3.Error as error:
            if is_damage(error):
                raise Unreadable("is damaged") from error
            raise
        # No constraint of SQLite's holds in a file that has a bit turned.
        if not len(rows) == len({row.key for row in rows}) == num_payloads:
            raise Unreadable("is damaged")
        return sorted(rows, key=lambda row: row.used)

    def insert(self, pages: Iterable[tuple[Row, Payload]]) -> None:
        """Add pages, all or none."""
        with self._transaction():
            for row, payload in pages:
                self._db.execute(
                    "INSERT INTO page VALUES (?, ?, ?, ?, ?)",
                    (row.id, row.key, row.num_bytes, row.checksum, row.used),
                )
                self._db.execute("INSERT INTO payload VALUES (?, ?)", (row.id, payload))

    def delete(self, ids: Iterable[int]) -> None:
        """Delete pages, all or none.

        Never in one transaction with an `insert`: what a transaction frees and fills again, SQLite
        writes into its journal first.
        """
        numbers = [(number,) for number in ids]
        with self._transaction():
            self._db.executemany("DELETE FROM page WHERE id = ?", numbers)
            self._db.executemany("DELETE FROM payload WHERE id = ?", numbers)

    def set_used(self, used: Iterable[tuple[int, int]]) -> None:
        """Record when pages were used last: pairs of `used` and id."""
        with self._transaction():
            self._db.executemany("UPDATE page SET used = ? WHERE id = ?", used)

    def read(self, row: Row) -> bytes | None:
        """The payload; None if there is none of that length."""
        try:
            with self._db.blobopen("payload", "bytes", row.id, readonly=True) as blob:
                return blob.read() if len(blob) == row.num_bytes else None
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # "no such rowid"
                return None
            raise

    def shrink(self, num_bytes: int) -> None:
        """Give up to `num_bytes` of free space back, moving pages out of the file's end."""
        num_blocks = -(-num_bytes // BLOCK_BYTES)
        # A row without columns comes back for each block, and `execute` leaves it at the first.
        self._db.executescript(f"PRAGMA incremental_vacuum({num_blocks})")

    def close(self) -> None:
        """Close the file; it is consistent whether this is called or not."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A full disk makes SQLite roll back by itself.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _number(self, pragma: str) -> int:
        ((value,),) = self._db.execute(f"PRAGMA {pragma}")
        return int(value)


def _sound(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < 2**48:
        raise Unreadable("is damaged")
    return number


def is_damage(error: BaseException) -> bool:
    """Whether the file's contents are at fault, so that a new file would help.

    Our statements are right for the tables we made. So an error in one, or a constraint that does
    not hold, tells of damage as plainly as SQLite's own words for it.
    """
    return _primary_code(error) in _DAMAGE


def is_refusal(error: BaseException) -> bool:
    """Whether the system does not let us have the file."""
    return isinstance(error, OSError) or _primary_code(error) in _REFUSAL


def _primary_code(error: BaseException) -> int:
    """SQLite's result code without what extends it; 0 for an error that is not SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
