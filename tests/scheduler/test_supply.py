"""What can be had of pages, and what is evicted for it."""

import pytest

from trioserve.core import SHARED, StepNumber
from trioserve.kv.pool import PagePool
from trioserve.kv.tree import PrefixTree
from trioserve.scheduler.supply import PageSupply


@pytest.fixture
def supply() -> PageSupply:
    """Four pages: two cached and unused, two leased."""
    pool = PagePool(4)
    tree = PrefixTree(pool, page_size=1)
    lease = tree.lease(SHARED)
    lease.extend(2)
    tree.publish(lease, (1, 2), 2, None)
    lease.release(None)
    tree.lease(None).extend(2)
    return PageSupply(pool, tree, page_size=1)


def test_unused_pages_can_be_had_and_leased_ones_cannot(supply: PageSupply) -> None:
    assert not supply.lacks(2)
    assert supply.lacks(3)
    assert supply.set_free(2)
    assert supply.pool.num_free == 2


def test_an_eviction_that_is_not_enough_is_not_made(supply: PageSupply) -> None:
    assert not supply.set_free(3)
    assert supply.tree.num_pages == 2


def test_what_comes_free_by_itself_is_waited_for_and_nothing_is_evicted_for_it(
    supply: PageSupply,
) -> None:
    pool = supply.pool
    released = supply.tree.lease(None)
    supply.tree.evict(1)
    released.extend(1)
    released.release(StepNumber(1))
    assert (pool.num_free, pool.num_coming_free, supply.tree.num_pages) == (0, 1, 1)
    assert not supply.set_free(1)
    assert supply.tree.num_pages == 1
    pool.retire(StepNumber(1))
    assert supply.set_free(1)
    assert supply.tree.num_pages == 1
