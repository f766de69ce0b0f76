"""Promises 1 and 3: every page in one place, and none reused before its fence has retired."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioserve.core import StepNumber
from trioserve.errors import OutOfPages
from trioserve.kv.pool import PagePool, PoolStatistics


def test_release_with_a_fence_in_flight_keeps_pages_in_quarantine_until_it_retires() -> None:
    pool = PagePool(4)
    lease = pool.lease(3)
    lease.release(StepNumber(2))
    assert pool.statistics() == PoolStatistics(free=1, leased=0, cached=0, quarantined=3, total=4)
    pool.retire(StepNumber(1))
    assert pool.num_free == 1
    pool.retire(StepNumber(2))
    assert pool.num_free == 4
    pool.check()


def test_release_after_the_fence_retired_frees_at_once() -> None:
    pool = PagePool(4)
    lease = pool.lease(2)
    pool.retire(StepNumber(1))
    lease.release(StepNumber(1))
    assert pool.num_free == 4


def test_release_without_a_fence_frees_at_once() -> None:
    pool = PagePool(2)
    pool.lease(2).release(None)
    assert pool.num_free == 2


def test_an_older_fence_behind_a_newer_one_is_not_held_back() -> None:
    pool = PagePool(2)
    newer, older = pool.lease(1), pool.lease(1)
    newer.release(StepNumber(5))
    older.release(StepNumber(1))
    pool.retire(StepNumber(1))
    assert pool.num_free == 1


def test_a_lease_that_does_not_fit_changes_nothing() -> None:
    pool = PagePool(3)
    lease = pool.lease(2)
    with pytest.raises(OutOfPages, match="2 pages asked for, 1 free"):
        lease.extend(2)
    assert len(lease.page_ids) == 2
    assert pool.num_free == 1
    pool.check()


def test_releasing_twice_is_our_own_mistake_and_asserts() -> None:
    pool = PagePool(1)
    lease = pool.lease(1)
    lease.release(None)
    with pytest.raises(AssertionError, match="released twice"):
        lease.release(None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["lease", "extend", "release", "retire"]), st.integers(0, 5))
    )
)
def test_census_is_whole_after_any_history(history: list[tuple[str, int]]) -> None:
    pool = PagePool(12)
    leases = []
    launched = 1
    retired = 0
    for action, number in history:
        if action == "lease" and number <= pool.num_free:
            leases.append(pool.lease(number))
        elif action == "extend" and leases and number <= pool.num_free:
            leases[number % len(leases)].extend(number)
        elif action == "release" and leases:
            launched += number % 2
            leases.pop(number % len(leases)).release(StepNumber(launched))
        elif action == "retire" and retired < launched:
            retired += 1
            pool.retire(StepNumber(retired))
        pool.check()
    census = pool.statistics()
    assert census.free + census.leased + census.cached + census.quarantined == census.total
    for lease in leases:
        lease.release(None)
    if launched > retired:
        pool.retire(StepNumber(launched))
    assert pool.num_free == 12
