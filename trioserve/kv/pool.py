"""`PagePool` and `PageLease`: every page is free, leased, cached or quarantined, never two.

    free ──lease──▶ leased ──release──▶ quarantined ──retire(fence)──▶ free
                       └──────release, nothing in flight──────────────▶ free

The pool alone decides when a page is free again. A release names the last step that may touch the
pages (the fence); until that step has retired they wait in quarantine, because the device may
still write to them. Rejected: freeing at once and relying on the device's order of work, which
holds on one stream but not for a copy stream or for a step that is planned before it is launched.

`cached` is the share of the prefix tree; nothing is cached yet and the count is zero.
"""

from collections import deque
from collections.abc import Sequence

from attrs import define, field, frozen

from trioserve.core import PageId, StepNumber
from trioserve.errors import OutOfPages


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


class PageLease:
    """Pages held for one sequence; made by `PagePool.lease`, ended by one `release`.

    No method is a checkpoint, so all are safe in a cancelled task. `page_ids` stay valid on the
    device until the fence given to `release` has retired.
    """

    def __init__(self, pool: "PagePool", page_ids: list[PageId]) -> None:
        self._pool = pool
        self._page_ids = page_ids
        self._is_released = False

    @property
    def page_ids(self) -> Sequence[PageId]:
        """The pages in the order of the positions they hold."""
        return self._page_ids

    def extend(self, num_pages: int) -> None:
        """Add `num_pages` free pages. Raises OutOfPages, changing nothing, if there are fewer."""
        assert not self._is_released, "a released lease was extended"
        self._page_ids.extend(self._pool._take(num_pages))

    def release(self, fence: StepNumber | None) -> None:
        """End the lease. `fence` is the last step that names its pages, None if none ever did."""
        assert not self._is_released, f"pages {self._page_ids} were released twice"
        self._is_released = True
        self._pool._give_back(self, tuple(self._page_ids), fence)


@define(eq=False)
class PagePool:
    """All pages of one device. Used by the scheduler and the engine on one thread; no locks."""

    num_pages: int
    _free: list[PageId] = field(init=False)
    _leases: set[PageLease] = field(init=False, factory=set)
    _num_leased: int = field(init=False, default=0)
    _quarantine: deque[_Quarantined] = field(init=False, factory=deque)
    _num_quarantined: int = field(init=False, default=0)
    _last_retired: StepNumber = field(init=False, default=StepNumber(0))

    def __attrs_post_init__(self) -> None:
        assert self.num_pages > 0, f"a pool needs pages, got {self.num_pages}"
        # A stack: pages used last are used next, while they are still in the CPU's cache.
        self._free = [PageId(page) for page in reversed(range(self.num_pages))]

    @property
    def num_free(self) -> int:
        """Pages that can be leased now."""
        return len(self._free)

    @property
    def num_coming_free(self) -> int:
        """Pages in quarantine: free as soon as the steps in flight have retired."""
        return self._num_quarantined

    def lease(self, num_pages: int) -> PageLease:
        """Lease `num_pages` free pages. Raises OutOfPages, changing nothing, if there are fewer."""
        lease = PageLease(self, self._take(num_pages))
        self._leases.add(lease)
        return lease

    def retire(self, step: StepNumber) -> None:
        """The device is done with `step` and all before it: free what only they could touch."""
        assert step > self._last_retired, f"step {step} retired after {self._last_retired}"
        self._last_retired = step
        # Fences are not in order here: a sequence that was planned long ago may be released after
        # one that the newest step names.
        still_held: deque[_Quarantined] = deque()
        for entry in self._quarantine:
            if entry.fence <= step:
                self._free.extend(reversed(entry.page_ids))
                self._num_quarantined -= len(entry.page_ids)
            else:
                still_held.append(entry)
        self._quarantine = still_held

    def statistics(self) -> PoolStatistics:
        """The census now."""
        return PoolStatistics(
            free=len(self._free),
            leased=self._num_leased,
            cached=0,
            quarantined=self._num_quarantined,
            total=self.num_pages,
        )

    def check(self) -> None:
        """Assert the census: each page in exactly one place. Costs one pass over all pages."""
        leased = [page for lease in self._leases for page in lease.page_ids]
        quarantined = [page for entry in self._quarantine for page in entry.page_ids]
        assert len(leased) == self._num_leased, f"{len(leased)} leased, counted {self._num_leased}"
        assert len(quarantined) == self._num_quarantined, (
            f"{len(quarantined)} quarantined, counted {self._num_quarantined}"
        )
        everywhere = [*self._free, *leased, *quarantined]
        assert len(everywhere) == self.num_pages, f"{len(everywhere)} of {self.num_pages} pages"
        assert len(set(everywhere)) == self.num_pages, "a page is in two places"

    def _take(self, num_pages: int) -> list[PageId]:
        if num_pages > len(self._free):
            raise OutOfPages(f"{num_pages} pages asked for, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(num_pages)]
        self._num_leased += num_pages
        return taken

    def _give_back(
        self, lease: PageLease, page_ids: tuple[PageId, ...], fence: StepNumber | None
    ) -> None:
        self._leases.remove(lease)
        self._num_leased -= len(page_ids)
        if fence is None or fence <= self._last_retired:
            self._free.extend(reversed(page_ids))
        else:
            self._quarantine.append(_Quarantined(fence, page_ids))
            self._num_quarantined += len(page_ids)
