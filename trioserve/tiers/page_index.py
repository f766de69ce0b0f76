"""`PageIndex`: which pages the storage tier has, and in which order they were used."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

from attrs import define, field

from trioserve.tiers.page_file import Row
from trioserve.tiers.page_key import PageKey


@define(eq=False)
class PageIndex:
    """All rows of a page file, the least recently used first: some 500 bytes each.

    Asking whether a key is in it is safe from any thread; all else belongs to one thread at a time.
    """

    _rows: OrderedDict[PageKey, Row] = field(init=False, factory=OrderedDict)
    _unsaved: dict[PageKey, int] = field(init=False, factory=dict)
    """When pages were used last of which the file has an older word."""
    _clock: int = field(init=False, default=0)
    _next_id: int = field(init=False, default=1)

    def __contains__(self, key: PageKey) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def num_unsaved(self) -> int:
        """Pages whose last use is not written down."""
        return len(self._unsaved)

    def load(self, rows: Sequence[Row]) -> None:
        """Take the rows of a file in place of what is here; the least recently used first."""
        self.clear()
        self._rows.update((row.key, row) for row in rows)
        self._clock = max((row.used for row in rows), default=0)
        self._next_id = max((row.id for row in rows), default=0) + 1

    def clear(self) -> None:
        """Forget all."""
        self._rows.clear()
        self._unsaved.clear()

    def get(self, key: PageKey) -> Row | None:
        """The row of a page, None if there is none."""
        return self._rows.get(key)

    def make_row(self, key: PageKey, num_bytes: int, checksum: int) -> Row:
        """A row for a new page, used now; it is not in the index before `add`."""
        self._clock += 1
        self._next_id += 1
        return Row(self._next_id - 1, key, num_bytes, checksum, self._clock)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in rows that are in the file now."""
        self._rows.update((row.key, row) for row in rows)

    def remove(self, rows: Iterable[Row]) -> None:
        """Forget rows that are no longer in the file."""
        for row in rows:
            del self._rows[row.key]
            self._unsaved.pop(row.key, None)

    def touch(self, keys: Sequence[PageKey]) -> None:
        """Count the pages of one prefix as used, as far as they are here.

        From the last to the first: a page is of no use without those before it, so these have to be
        evicted after it.
        """
        for key in reversed(keys):
            if key in self._rows:
                self._clock += 1
                self._unsaved[key] = self._clock
                self._rows.move_to_end(key)

    def oldest(self, num_bytes: int, but: Collection[PageKey]) -> list[Row]:
        """The rows used longest ago that come to `num_bytes`; it ends at the first one in `but`."""
        found: list[Row] = []
        for key, row in self._rows.items():
            if num_bytes <= 0 or key in but:
                break
            found.append(row)
            num_bytes -= row.num_bytes
        return found

    def take_unsaved(self, max_pages: int) -> list[tuple[int, int]]:
        """Pairs of last use and row id that are to be written down now."""
        keys = list(self._unsaved)[:max_pages]
        return [(self._unsaved.pop(key), self._rows[key].id) for key in keys]
