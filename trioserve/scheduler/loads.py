"""`PageLoads`: prefixes that a lower tier is bringing back into pages, for sequences that wait."""

from collections.abc import Callable, Iterator

from attrs import define, field

from trioserve.core import CachedTokens, PageId
from trioserve.kv.lease import PageLease
from trioserve.scheduler.sequence import Sequence, SequenceState
from trioserve.scheduler.supply import PageSupply


@define(eq=False)
class PageLoad:
    """One prefix on its way. Its lease holds what is there already and the pages being filled."""

    sequence: Sequence
    """Whose turn it is for; others that begin alike wait for the same pages."""
    lease: PageLease
    token_ids: tuple[int, ...]
    """Of the pages that the tiers have, from the first on; whole pages."""

    @property
    def is_wanted(self) -> bool:
        """Whether its sequence still waits: one that was aborted, or has begun, needs no more."""
        return self.sequence.state is SequenceState.WAITING


@define(eq=False)
class PageLoads:
    """All loads of a scheduler. Used on its thread; no method is a checkpoint.

    A load is made by `begin` and ended by one `end`. In between `take` and `publish` alternate:
    pages that were taken are the load's alone until what they were filled with is published.
    """

    _supply: PageSupply
    _num_promised: Callable[[], int]
    """Pages that the batch has still to be given."""
    _loads: dict[PageLoad, None] = field(init=False, factory=dict)

    def __iter__(self) -> Iterator[PageLoad]:
        return iter(self._loads)

    def begin(self, sequence: Sequence, num_tokens: int) -> PageLoad:
        """A load of the sequence's first `num_tokens`, as far as they are not cached."""
        assert sequence.namespace is not None, "nothing is kept of a sequence without a namespace"
        token_ids = tuple(sequence.known_ids[:num_tokens])
        lease = self._supply.tree.lease(sequence.namespace, token_ids, num_tokens)
        load = PageLoad(sequence, lease, token_ids)
        self._loads[load] = None
        return load

    def take(self, load: PageLoad, num_pages: int) -> list[PageId]:
        """Up to `num_pages` pages to fill, perhaps none. Evicts what is unused, preempts nobody."""
        tree, pool = self._supply.tree, self._supply.pool
        spare = pool.num_free + tree.num_unused - self._num_promised()
        tree.evict(max(0, min(num_pages, spare) - pool.num_free))
        # What was evicted while a step reads it is not free yet.
        load.lease.extend(max(0, min(num_pages, spare, pool.num_free)))
        return list(load.lease.own_page_ids)

    def publish(self, load: PageLoad, num_host: int, num_storage: int) -> None:
        """The first pages taken are filled, so many; if not all are, the load has to end."""
        num_pages = load.lease.num_shared + num_host + num_storage
        page_size = self._supply.page_size
        self._supply.tree.publish(load.lease, load.token_ids, num_pages * page_size, None)
        before = load.sequence.restored
        load.sequence.restored = CachedTokens(
            host=before.host + num_host * page_size,
            storage=before.storage + num_storage * page_size,
        )

    def end(self, load: PageLoad) -> None:
        """Unlock what was loaded; its sequence finds it like any other prefix."""
        del self._loads[load]
        load.lease.release(None)


def sources(num_cached: int, restored: CachedTokens) -> CachedTokens:
    """Where so many cached tokens came from: what was loaded for it comes first."""
    storage = min(restored.storage, num_cached)
    host = min(restored.host, num_cached - storage)
    return CachedTokens(num_cached - host - storage, host, storage)
