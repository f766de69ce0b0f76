"""Promises 1 and 3: every page in one place, and none reused before its fence has retired."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioserve.core import PageId, StepNumber
from trioserve.errors import OutOfPages
from trioserve.kv.pool import PagePool, PageState, PoolStatistics


def test_pages_given_back_with_a_fence_in_flight_wait_in_quarantine_until_it_retires() -> None:
    pool = PagePool(4)
    pool.give_back(pool.take(3), StepNumber(2))
    assert pool.statistics() == PoolStatistics(free=1, leased=0, cached=0, quarantined=3, total=4)
    pool.retire(StepNumber(1))
    assert pool.num_free == 1
    pool.retire(StepNumber(2))
    assert pool.num_free == 4
    pool.check()


def test_a_cached_page_that_is_evicted_while_a_step_reads_it_waits_like_any_other() -> None:
    pool = PagePool(2)
    (page,) = pool.take(1)
    pool.keep(page)
    assert pool.statistics() == PoolStatistics(free=1, leased=0, cached=1, quarantined=0, total=2)
    pool.evict(page, StepNumber(1))
    assert pool.statistics() == PoolStatistics(free=1, leased=0, cached=0, quarantined=1, total=2)
    assert pool.num_coming_free == 1
    pool.retire(StepNumber(1))
    assert pool.num_free == 2
    pool.check()


def test_pages_are_free_at_once_when_their_fence_has_retired_or_there_is_none() -> None:
    pool = PagePool(4)
    fenced, unfenced = pool.take(2), pool.take(2)
    pool.retire(StepNumber(1))
    pool.give_back(fenced, StepNumber(1))
    assert pool.num_free == 2
    pool.give_back(unfenced, None)
    assert pool.num_free == 4
    pool.check()


def test_an_older_fence_behind_a_newer_one_is_not_held_back() -> None:
    pool = PagePool(2)
    newer, older = pool.take(1), pool.take(1)
    pool.give_back(newer, StepNumber(5))
    pool.give_back(older, StepNumber(1))
    pool.retire(StepNumber(1))
    assert pool.num_free == 1


def test_more_pages_than_are_free_change_nothing() -> None:
    pool = PagePool(3)
    pool.take(2)
    with pytest.raises(OutOfPages, match="2 pages asked for, 1 free"):
        pool.take(2)
    assert pool.num_free == 1
    pool.check()


@pytest.mark.case(97)
def test_giving_a_page_back_twice_is_our_own_mistake_and_asserts() -> None:
    pool = PagePool(2)
    pages = pool.take(1)
    pool.give_back(pages, None)
    with pytest.raises(AssertionError, match=r"is PageState.FREE, not PageState.LEASED"):
        pool.give_back(pages, None)


def test_a_page_of_the_tree_cannot_be_given_back_by_a_lease() -> None:
    pool = PagePool(2)
    pages = pool.take(1)
    pool.keep(pages[0])
    with pytest.raises(AssertionError, match=r"is PageState.CACHED, not PageState.LEASED"):
        pool.give_back(pages, None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["take", "give back", "keep", "evict", "retire"]), st.integers(0, 5)
        )
    )
)
def test_census_is_whole_after_any_history(history: list[tuple[str, int]]) -> None:
    pool = PagePool(12)
    held: list[PageId] = []
    kept: list[PageId] = []
    launched = 1
    retired = 0
    for action, number in history:
        if action == "take" and number <= pool.num_free:
            held += pool.take(number)
        elif action == "give back":
            launched += number % 2
            pool.give_back(held[:number], StepNumber(launched))
            del held[:number]
        elif action == "keep" and held:
            kept.append(held.pop())
            pool.keep(kept[-1])
        elif action == "evict" and kept:
            launched += number % 2
            pool.evict(kept.pop(number % len(kept)), StepNumber(launched))
        elif action == "retire" and retired < launched:
            retired += 1
            pool.retire(StepNumber(retired))
        pool.check()
        assert pool.pages_in(PageState.LEASED) == set(held)
        assert pool.pages_in(PageState.CACHED) == set(kept)
        census = pool.statistics()
        assert census.free + census.leased + census.cached + census.quarantined == census.total
    pool.give_back(held, None)
    for page in kept:
        pool.evict(page, None)
    if launched > retired:
        pool.retire(StepNumber(launched))
    assert pool.num_free == 12
