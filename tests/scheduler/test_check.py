"""`check` finds books that do not agree: each test plants one mistake."""

import pytest

from tests.scheduler.kit import Steps
from trioserve.core import CacheNamespace
from trioserve.scheduler.sequence import Sequence, SequenceState


@pytest.fixture
def steps() -> Steps:
    """Two decoding sequences, one whose reader has stalled, one in the queue."""
    steps = Steps(max_running=2)
    steps.add(4, room=1)
    steps.add(5)
    steps.add(6)
    steps.add(7)
    steps.step(2)
    running, paused, waiting = places(steps)
    assert (len(running), len(paused), len(waiting)) == (2, 1, 1)
    return steps


def places(steps: Steps) -> tuple[list[Sequence], list[Sequence], list[Sequence]]:
    scheduler = steps.scheduler
    return scheduler._places.running, scheduler._places.paused, scheduler._places.waiting._sequences


def test_a_sequence_in_the_wrong_state_is_found(steps: Steps) -> None:
    for held in places(steps):
        state, held[0].state = held[0].state, SequenceState.ENDED
        with pytest.raises(AssertionError, match="ENDED"):
            steps.scheduler.check()
        held[0].state = state
    steps.scheduler.check()


def test_sequences_out_of_order_are_found(steps: Steps) -> None:
    steps.scheduler._places.running.reverse()
    with pytest.raises(AssertionError, match="out of order"):
        steps.scheduler.check()


def test_a_page_too_many_is_found(steps: Steps) -> None:
    lease = steps.scheduler._places.running[0].lease
    assert lease is not None
    lease.extend(1)
    with pytest.raises(AssertionError, match="holds 3 pages for 2"):
        steps.scheduler.check()


def test_a_page_too_few_is_found(steps: Steps) -> None:
    steps.scheduler._places.running[0].num_planned += 4
    with pytest.raises(AssertionError, match="holds 2 pages for 3"):
        steps.scheduler.check()


def test_a_lease_that_nobody_holds_is_found(steps: Steps) -> None:
    steps.scheduler.tree.lease(None).extend(1)
    with pytest.raises(AssertionError, match="the pool leased"):
        steps.scheduler.check()


def test_a_sequence_that_keeps_its_pages_in_the_queue_is_found(steps: Steps) -> None:
    lease = steps.scheduler._places.waiting._sequences[0].lease = steps.scheduler.tree.lease(None)
    lease.extend(1)
    with pytest.raises(AssertionError, match="holds 1 pages for 0"):
        steps.scheduler.check()


def test_a_user_that_the_tree_counted_and_nobody_is_is_found() -> None:
    steps = Steps()
    steps.add(8, namespace=CacheNamespace())
    steps.step()
    (node, _) = steps.scheduler.tree.nodes()
    steps.scheduler.check()
    node.num_users += 1
    steps.scheduler.tree._roots[CacheNamespace()].num_users += 1
    with pytest.raises(AssertionError, match="2 users, not 1"):
        steps.scheduler.check()


def test_one_running_sequence_too_many_is_found(steps: Steps) -> None:
    extra = steps.scheduler._places.waiting._sequences.pop()
    extra.state = SequenceState.RUNNING
    steps.scheduler._places.running.append(extra)
    with pytest.raises(AssertionError, match="3 running"):
        steps.scheduler.check()


def test_a_sequence_listed_twice_is_found(steps: Steps) -> None:
    steps.scheduler._places.waiting._sequences *= 2
    with pytest.raises(AssertionError, match="out of order"):
        steps.scheduler.check()


def test_a_page_in_two_places_is_found_by_the_pool(steps: Steps) -> None:
    lease = steps.scheduler._places.running[0].lease
    assert lease is not None
    steps.pool._free[0] = lease.page_ids[0]
    with pytest.raises(AssertionError, match=r"PageState\.FREE"):
        steps.pool.check()


def test_a_lost_page_is_found_by_the_pool(steps: Steps) -> None:
    steps.pool._free.pop()
    with pytest.raises(AssertionError, match=r"59 pages PageState\.FREE, counted 58"):
        steps.pool.check()
