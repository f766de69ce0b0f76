"""A higher priority is served first; an equal one in order of arrival."""

from tests.scheduler.kit import Steps, is_running, is_waiting
from trioserve.core import CachedTokens, CacheNamespace


def test_a_higher_priority_is_admitted_first() -> None:
    steps = Steps(max_running=1)
    busy = steps.add(4, max_tokens=2)
    steps.launch()
    low, high, equal = (steps.add(4, 1, priority=number) for number in (0, 2, 2))
    steps.finish()
    order = []
    while steps.in_flight or steps.launch() is not None:
        order += [row.sequence for row in steps.in_flight[0].rows]
        steps.finish()
    assert order == [busy, high, equal, low]


def test_the_lowest_priority_is_preempted_first_though_it_is_the_oldest() -> None:
    steps = Steps(num_pages=8)
    low, high = steps.add(8, priority=-1), steps.add(8)
    while low.num_preemptions == 0:
        assert high.num_preemptions == 0
        steps.step()
    assert is_running(high)
    assert is_waiting(low)


def test_a_cached_prefix_does_not_pass_a_higher_priority() -> None:
    steps = Steps(max_running=1, max_step_tokens=64)
    shared = CacheNamespace()
    prompt = tuple(range(12))
    steps.add(prompt, 1, namespace=shared)
    steps.step()
    high = steps.add(tuple(range(100, 112)), 1, namespace=shared, priority=1)
    low = steps.add(prompt, 1, namespace=shared)
    assert high in steps.step()
    assert low in steps.step()
    assert low.cached == CachedTokens(device=8)


def test_one_that_waits_for_anothers_page_does_not_hold_up_a_lower_priority() -> None:
    steps = Steps(max_step_tokens=64)
    shared, prompt = CacheNamespace(), tuple(range(12))
    first = steps.add(prompt, 1, namespace=shared, priority=1)
    same = steps.add(prompt, 1, namespace=shared, priority=1)
    low = steps.add(4, 1)
    assert steps.step() == {first: 12, low: 4}
    assert is_waiting(same)
