"""`PagePool`: every page is free, leased, cached or quarantined, never two.

    free ──take──▶ leased ──give_back──▶ quarantined ──retire(fence)──▶ free
                     │ └─────give_back, nothing in flight─────────────▶ free
                     └──keep──▶ cached ──evict──▶ quarantined or free, likewise

The pool alone decides when a page is free again. Whoever gives one up names the last step that may
touch it (the fence); until that step has retired the page waits in quarantine, because the device
may still read or write it. Rejected: freeing at once and relying on the device's order of work,
which holds on one stream but not for a copy stream or for a step that is planned before it is
launched.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto

from attrs import define, field, frozen

from trioserve.core import PageId, StepNumber
from trioserve.errors import OutOfPages


class PageState(Enum):
    """Where a page is."""

    FREE = auto()
    LEASED = auto()
    """Held by one lease alone; its contents may change."""
    CACHED = auto()
    """In the prefix tree, whether leases share it or not; its contents do not change."""
    QUARANTINED = auto()
    """Given up, but steps in flight may touch it."""


@frozen
class PoolStatistics:
    """A snapshot of the census, in pages."""

    free: int
    leased: int
    cached: int
    quarantined: int
    total: int


@frozen
class _Quarantined:
    fence: StepNumber
    page_ids: tuple[PageId, ...]


@define(eq=False)
class PagePool:
    """All pages of one device. Used by leases and the prefix tree on one thread; no locks.

    No method is a checkpoint, so all are safe in a cancelled task.
    """

    num_pages: int
    _states: list[PageState] = field(init=False)
    _free: list[PageId] = field(init=False)
    _quarantine: deque[_Quarantined] = field(init=False, factory=deque)
    _num_leased: int = field(init=False, default=0)
    _num_cached: int = field(init=False, default=0)
    _num_quarantined: int = field(init=False, default=0)
    _last_retired: StepNumber = field(init=False, default=StepNumber(0))

    def __attrs_post_init__(self) -> None:
        assert self.num_pages > 0, f"a pool needs pages, got {self.num_pages}"
        self._states = [PageState.FREE] * self.num_pages
        # A stack: pages used last are used next, while they are still in the CPU's cache.
        self._free = [PageId(page) for page in reversed(range(self.num_pages))]

    @property
    def num_free(self) -> int:
        """Pages that can be taken now."""
        return len(self._free)

    @property
    def num_coming_free(self) -> int:
        """Pages in quarantine: free as soon as the steps in flight have retired."""
        return self._num_quarantined

    def take(self, num_pages: int) -> list[PageId]:
        """Free pages, leased from now on. Raises OutOfPages, changing nothing, if it has fewer."""
        if num_pages > len(self._free):
            raise OutOfPages(f"{num_pages} pages asked for, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(num_pages)]
        self._move(taken, PageState.FREE, PageState.LEASED)
        self._num_leased += num_pages
        return taken

    def give_back(self, page_ids: Sequence[PageId], fence: StepNumber | None) -> None:
        """End the lease of these. `fence` is the last step that names them, None if none did."""
        self._num_leased -= len(page_ids)
        self._give_up(page_ids, PageState.LEASED, fence)

    def keep(self, page_id: PageId) -> None:
        """A leased page is the prefix tree's from now on."""
        self._move((page_id,), PageState.LEASED, PageState.CACHED)
        self._num_leased -= 1
        self._num_cached += 1

    def evict(self, page_id: PageId, fence: StepNumber | None) -> None:
        """The prefix tree gives a page up; `fence` is the last step that reads it."""
        self._num_cached -= 1
        self._give_up((page_id,), PageState.CACHED, fence)

    def retire(self, step: StepNumber) -> None:
        """The device is done with `step` and all before it: free what only they could touch."""
        assert step > self._last_retired, f"step {step} retired after {self._last_retired}"
        self._last_retired = step
        # Fences are not in order here: a sequence that was planned long ago may be released after
        # one that the newest step names.
        still_held: deque[_Quarantined] = deque()
        for entry in self._quarantine:
            if entry.fence <= step:
                self._set_free(entry.page_ids, PageState.QUARANTINED)
                self._num_quarantined -= len(entry.page_ids)
            else:
                still_held.append(entry)
        self._quarantine = still_held

    def pages_in(self, state: PageState) -> set[PageId]:
        """All pages in a state, for checks; one pass over the pool."""
        return {PageId(page) for page, held in enumerate(self._states) if held is state}

    def statistics(self) -> PoolStatistics:
        """The census now."""
        return PoolStatistics(
            free=len(self._free),
            leased=self._num_leased,
            cached=self._num_cached,
            quarantined=self._num_quarantined,
            total=self.num_pages,
        )

    def check(self) -> None:
        """Assert the census: each page in exactly one place. Costs one pass over all pages."""
        quarantined = [page for entry in self._quarantine for page in entry.page_ids]
        for state, counted, listed in (
            (PageState.FREE, len(self._free), self._free),
            (PageState.QUARANTINED, self._num_quarantined, quarantined),
            (PageState.LEASED, self._num_leased, None),
            (PageState.CACHED, self._num_cached, None),
        ):
            held = self.pages_in(state)
            assert len(held) == counted, f"{len(held)} pages {state}, counted {counted}"
            assert listed is None or sorted(listed) == sorted(held), f"{state}: {listed} for {held}"

    def _give_up(
        self, page_ids: Sequence[PageId], held: PageState, fence: StepNumber | None
    ) -> None:
        if fence is None or fence <= self._last_retired:
            self._set_free(page_ids, held)
            return
        self._move(page_ids, held, PageState.QUARANTINED)
        self._quarantine.append(_Quarantined(fence, tuple(page_ids)))
        self._num_quarantined += len(page_ids)

    def _set_free(self, page_ids: Sequence[PageId], held: PageState) -> None:
        self._move(page_ids, held, PageState.FREE)
        self._free.extend(reversed(page_ids))

    def _move(self, page_ids: Sequence[PageId], held: PageState, state: PageState) -> None:
        """The one place where a page changes its state."""
        for page in page_ids:
            assert self._states[page] is held, f"page {page} is {self._states[page]}, not {held}"
            self._states[page] = state
