"""The prefix tree against a dictionary, and what it owes to leases, fences and namespaces."""

from collections.abc import Sequence

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from trioserve.core import CacheNamespace, PageId, StepNumber
from trioserve.kv.lease import PageLease
from trioserve.kv.pool import PagePool, PageState, PoolStatistics
from trioserve.kv.tree import PrefixTree

PAGE = 2
SHARED = CacheNamespace()
SALTED = CacheNamespace(salt="a")


@define(eq=False)
class Cache:
    """A tree over a small pool, and sequences reduced to their leases."""

    num_pages: int = 16
    pool: PagePool = field(init=False)
    tree: PrefixTree = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.pool = PagePool(self.num_pages)
        self.tree = PrefixTree(self.pool, PAGE)

    def compute(
        self,
        tokens: Sequence[int],
        namespace: CacheNamespace = SHARED,
        fence: StepNumber | None = None,
    ) -> PageLease:
        """A lease whose tokens were all computed and published."""
        lease = self.tree.lease(namespace, tokens, len(tokens))
        lease.extend(-(-len(tokens) // PAGE) - len(lease.page_ids))
        self.tree.publish(lease, tokens, len(tokens), fence)
        self.check()
        return lease

    def leave(
        self, tokens: Sequence[int], namespace: CacheNamespace = SHARED, step: int | None = None
    ) -> None:
        """The same, over: what stays is what the tree keeps."""
        fence = None if step is None else StepNumber(step)
        self.compute(tokens, namespace, fence).release(fence)
        self.check()

    def num_cached(self, tokens: Sequence[int], namespace: CacheNamespace = SHARED) -> int:
        """Tokens of the longest cached prefix."""
        node = self.tree.find(namespace, tokens, len(tokens))
        return 0 if node is None else node.depth * PAGE

    def check(self) -> None:
        self.pool.check()
        self.tree.check()


@pytest.fixture
def cache() -> Cache:
    return Cache()


def test_whole_pages_are_found_again_and_the_rest_is_not(cache: Cache) -> None:
    cache.leave((1, 2, 3, 4, 5))
    assert cache.num_cached((1, 2, 3, 4, 5, 6)) == 4
    assert cache.num_cached((1, 2, 3, 9)) == 2
    assert cache.num_cached((9, 2, 3, 4)) == 0
    assert cache.pool.statistics() == PoolStatistics(
        free=14, leased=0, cached=2, quarantined=0, total=16
    )


def test_a_prefix_is_found_up_to_the_limit_that_is_asked_for(cache: Cache) -> None:
    cache.leave((1, 2, 3, 4))
    lease = cache.tree.lease(SHARED, (1, 2, 3, 4), 3)
    assert lease.num_shared == 1


def test_the_same_page_after_another_prefix_is_another_page(cache: Cache) -> None:
    cache.leave((1, 1, 5, 5))
    cache.leave((2, 2))
    assert cache.num_cached((2, 2, 5, 5)) == 2


@pytest.mark.case(100)
def test_namespaces_share_nothing(cache: Cache) -> None:
    cache.leave((1, 2, 3, 4))
    assert cache.num_cached((1, 2, 3, 4), SALTED) == 0
    cache.leave((1, 2, 3, 4), SALTED)
    assert cache.tree.num_pages == 4
    # An empty salt is a salt.
    assert cache.num_cached((1, 2, 3, 4), CacheNamespace(salt="")) == 0


@pytest.mark.case(106)
def test_a_release_ends_one_use_and_leaves_the_pages_to_the_others(cache: Cache) -> None:
    first, second = cache.compute((1, 2, 3, 4)), cache.compute((1, 2, 3, 4))
    assert first.page_ids == second.page_ids
    first.release(None)
    assert cache.tree.evict(2) == 0
    assert cache.num_cached((1, 2, 3, 4)) == 4
    second.release(None)
    assert cache.tree.evict(2) == 2
    assert cache.pool.num_free == 16


def test_what_two_computed_at_once_is_kept_once_and_the_copy_waits_for_its_fence(
    cache: Cache,
) -> None:
    tokens = (1, 2, 3, 4)
    first, second = (cache.tree.lease(SHARED, tokens, 4) for _ in range(2))
    for lease in (first, second):
        lease.extend(2)
    copies = set(second.page_ids)
    for lease in (first, second):
        cache.tree.publish(lease, tokens, 4, StepNumber(1))
    assert first.page_ids == second.page_ids
    assert cache.pool.pages_in(PageState.QUARANTINED) == copies
    cache.pool.retire(StepNumber(1))
    assert cache.pool.pages_in(PageState.QUARANTINED) == set()
    cache.check()


def test_only_what_was_computed_is_published(cache: Cache) -> None:
    lease = cache.tree.lease(SHARED)
    lease.extend(3)
    cache.tree.publish(lease, (1, 2, 3, 4, 5, 6), 3, None)
    assert (lease.num_shared, cache.tree.num_pages) == (1, 1)
    lease.release(None)
    assert cache.pool.num_free == 15


def test_the_least_recently_used_goes_first_and_leaves_go_before_their_parents(
    cache: Cache,
) -> None:
    cache.leave((1, 1, 2, 2))
    cache.leave((3, 3))
    cache.leave((1, 1, 4, 4))
    assert cache.tree.evict(1) == 1
    assert cache.num_cached((1, 1, 2, 2)) == 2
    assert cache.tree.evict(1) == 1
    assert cache.num_cached((3, 3)) == 0
    assert cache.tree.evict(1) == 1
    assert cache.num_cached((1, 1, 4, 4)) == 2
    assert cache.tree.evict(5) == 1
    assert cache.pool.num_free == 16
    cache.check()


def test_a_page_that_is_found_again_is_young_again(cache: Cache) -> None:
    cache.leave((1, 1))
    cache.leave((2, 2))
    cache.tree.lease(SHARED, (1, 1), 2).release(None)
    cache.tree.evict(1)
    assert cache.num_cached((1, 1)) == 2
    assert cache.num_cached((2, 2)) == 0


def test_an_evicted_page_waits_for_the_last_step_that_read_it_by_whichever_lease(
    cache: Cache,
) -> None:
    first, second = cache.compute((1, 1)), cache.compute((1, 1))
    first.release(StepNumber(3))
    second.release(StepNumber(2))
    assert cache.tree.evict(1) == 1
    cache.pool.retire(StepNumber(2))
    assert cache.pool.num_free == 15
    cache.pool.retire(StepNumber(3))
    assert cache.pool.num_free == 16


def test_a_flush_leaves_what_is_in_use(cache: Cache) -> None:
    lease = cache.compute((1, 1))
    cache.leave((1, 1, 2, 2, 3, 3))
    assert cache.tree.flush() == 2
    assert cache.num_cached((1, 1, 2, 2)) == 2
    lease.release(None)
    assert cache.tree.flush() == 1
    cache.check()


def test_a_thousand_namespaces_leave_nothing_behind(cache: Cache) -> None:
    for salt in range(1000):
        cache.leave((1, 2, 3, 4), CacheNamespace(salt=str(salt)))
        cache.tree.evict(2 if salt % 2 else 0)
        if cache.pool.num_free < 4:
            cache.tree.flush()
    cache.tree.flush()
    assert not cache.tree._roots
    assert cache.pool.num_free == 16


def test_void_entries_of_the_eviction_order_do_not_pile_up(cache: Cache) -> None:
    for _ in range(1000):
        cache.leave((1, 2, 3, 4))
    assert len(cache.tree._leaves) < 100
    assert cache.tree.flush() == 2


TOKENS = st.lists(st.integers(1, 2), min_size=1, max_size=8).map(tuple)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["compute", "compute", "release", "evict", "retire"]),
            TOKENS,
            st.sampled_from([SHARED, SALTED]),
            st.integers(0, 7),
        ),
        max_size=40,
    )
)
def test_the_tree_agrees_with_a_dictionary_after_any_history(
    history: list[tuple[str, tuple[int, ...], CacheNamespace, int]],
) -> None:
    """The dictionary has the page of every prefix that was computed and not evicted."""
    cache = Cache(num_pages=12)
    pages: dict[tuple[CacheNamespace, tuple[int, ...]], PageId] = {}
    leases: list[PageLease] = []
    launched = retired = 1
    cache.pool.retire(StepNumber(1))
    for action, tokens, namespace, number in history:
        if action == "compute":
            cached = {len(prefix) for space, prefix in pages if space == namespace}
            longest = max(
                (n for n in cached if n <= len(tokens) and (namespace, tokens[:n]) in pages),
                default=0,
            )
            assert cache.num_cached(tokens, namespace) == longest
            if cache.pool.num_free < len(tokens):
                continue
            launched += 1
            lease = cache.compute(tokens, namespace, StepNumber(launched))
            for end in range(PAGE, len(tokens) + 1, PAGE):
                page = lease.page_ids[end // PAGE - 1]
                assert pages.setdefault((namespace, tokens[:end]), page) == page
            leases.append(lease)
        elif action == "release" and leases:
            leases.pop(number % len(leases)).release(StepNumber(launched))
        elif action == "evict":
            used = {page for lease in leases for page in lease.page_ids[: lease.num_shared]}
            num_unused = len(set(pages.values()) - used)
            assert cache.tree.num_unused == num_unused
            assert cache.tree.evict(number) == min(number, num_unused)
            kept = cache.pool.pages_in(PageState.CACHED)
            pages = {key: page for key, page in pages.items() if page in kept}
            assert used <= kept
            for space, prefix in pages:
                assert len(prefix) == PAGE or (space, prefix[:-PAGE]) in pages, "an orphan was kept"
        elif action == "retire" and retired < launched:
            retired = launched
            cache.pool.retire(StepNumber(launched))
        cache.check()
        assert cache.pool.pages_in(PageState.CACHED) == set(pages.values())
    for lease in leases:
        lease.release(None)
    cache.pool.retire(StepNumber(launched + 1))
    cache.tree.flush()
    assert cache.pool.num_free == 12
    assert not cache.tree._roots
