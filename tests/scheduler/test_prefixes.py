"""What was computed is computed once, and what is cached decides who comes next."""

from itertools import count

import pytest

from tests.scheduler.kit import Steps, fed, is_running, is_waiting, num_held
from trioserve.core import CacheNamespace, ReadoutParams
from trioserve.kv.pool import PageState
from trioserve.scheduler.admission import MAX_OVERTAKEN
from trioserve.scheduler.sequence import Sequence

SHARED = CacheNamespace()
_unique = count(1000)


def tokens(num_tokens: int) -> tuple[int, ...]:
    """Tokens that no other prompt has."""
    return tuple(next(_unique) for _ in range(num_tokens))


def num_cached(sequence: Sequence) -> int:
    """Prompt tokens that its first admission found in the cache."""
    assert sequence.cached is not None, "never admitted"
    return sequence.cached.total


def add(steps: Steps, prompt: tuple[int, ...], max_tokens: int = 1) -> Sequence:
    return steps.add(prompt, max_tokens, namespace=SHARED)


def finish_all(steps: Steps) -> None:
    while steps.turn(depth=1):
        pass


def warm(steps: Steps, prompt: tuple[int, ...]) -> None:
    """Have the prompt's whole pages cached, and nobody using them."""
    add(steps, prompt)
    finish_all(steps)
    steps.check_idle()


def test_a_prompt_that_comes_again_is_fed_only_from_its_first_uncached_page() -> None:
    steps, prompt = Steps(max_step_tokens=64), tokens(10)
    warm(steps, prompt)
    again = add(steps, (*prompt, *tokens(3)))
    assert steps.step() == {again: 5}
    assert num_cached(again) == 8


def test_the_last_token_is_always_fed() -> None:
    steps, prompt = Steps(max_step_tokens=64), tokens(8)
    warm(steps, prompt)
    again = add(steps, prompt)
    assert steps.step() == {again: 4}
    assert num_cached(again) == 4


def test_generated_tokens_are_there_for_the_next_turn() -> None:
    steps, prompt = Steps(max_step_tokens=64), tokens(4)
    first = add(steps, prompt, max_tokens=9)
    finish_all(steps)
    answer = first.token_ids
    turn = add(steps, (*answer, *tokens(2)))
    assert steps.step() == {turn: 3}  # the answer's last token was never fed
    assert num_cached(turn) == 12


@pytest.mark.case(7)
def test_a_prompt_that_was_cancelled_half_way_leaves_what_was_computed_and_no_more() -> None:
    steps, prompt = Steps(max_step_tokens=6), tokens(20)
    cancelled = add(steps, prompt)
    steps.step()
    steps.launch()  # tokens 6 to 12 are in flight
    steps.scheduler.end(cancelled)
    steps.finish()
    steps.check_idle()
    assert steps.scheduler.tree.num_pages == 1
    again = add(steps, prompt)
    steps.step()
    assert num_cached(again) == 4


@pytest.mark.case(106)
def test_a_cancel_takes_nothing_from_a_sequence_that_shares_its_prefix() -> None:
    steps, prompt = Steps(), tokens(10)
    warm(steps, prompt)
    left, stays = add(steps, (*prompt, 1), 50), add(steps, (*prompt, 2), 50)
    steps.step(2)
    assert stays.lease is not None
    pages = tuple(stays.lease.page_ids)
    steps.scheduler.end(left)
    assert tuple(stays.lease.page_ids) == pages
    assert [node.num_users for node in stays.lease.tip.path()][:2] == [1, 1]
    steps.scheduler.end(stays)
    steps.check_idle()
    steps.scheduler.tree.flush()
    assert steps.pool.num_free == steps.num_pages


def test_requests_that_begin_alike_and_come_at_once_have_it_computed_once() -> None:
    steps, prompt = Steps(num_pages=256, max_step_tokens=32), tokens(40)
    family = [add(steps, (*prompt, *tokens(2))) for _ in range(8)]
    num_fed = 0
    while steps.turn(depth=1):
        pass
    num_fed = sum(42 - num_cached(member) for member in family)
    assert num_fed == 42 + 7 * 2
    steps.check_idle()


def test_samples_of_one_prompt_compute_it_once_but_for_its_last_page() -> None:
    steps, prompt = Steps(num_pages=256, max_step_tokens=64), tokens(10)
    samples = [add(steps, prompt, max_tokens=3) for _ in range(4)]
    assert steps.step() == {samples[0]: 10}
    assert steps.step() == {samples[0]: 1, **dict.fromkeys(samples[1:], 2)}


def test_one_that_waits_for_anothers_page_holds_up_nobody_behind_it() -> None:
    steps, prompt = Steps(max_step_tokens=32), tokens(8)
    first, same, other = add(steps, prompt), add(steps, prompt), add(steps, tokens(4))
    assert steps.step() == {first: 8, other: 4}
    assert is_waiting(same)
    assert same.num_overtaken == 0


def test_one_that_waits_for_anothers_page_goes_on_by_itself_when_that_one_leaves() -> None:
    steps, prompt = Steps(max_step_tokens=4), tokens(12)
    first, same = add(steps, prompt), add(steps, prompt)
    steps.step()
    steps.launch()
    steps.scheduler.end(first)
    steps.finish()
    assert fed(steps.launch()) == {same: 4}
    assert num_cached(same) == 4


def test_the_longest_cached_prefix_is_admitted_first() -> None:
    steps = Steps(max_running=1, max_step_tokens=64)
    prompt = tokens(12)
    warm(steps, prompt)
    busy = add(steps, tokens(4), max_tokens=2)
    steps.launch()
    cold, lukewarm, hot = (
        add(steps, tokens(12)),
        add(steps, (*prompt[:6], *tokens(6))),
        add(steps, (*prompt, *tokens(2))),
    )
    steps.finish()
    order = []
    while steps.in_flight or steps.launch() is not None:
        order += [row.sequence for row in steps.in_flight[0].rows]
        steps.finish()
    assert order == [busy, hot, lukewarm, cold]


def test_nobody_is_overtaken_more_than_so_often() -> None:
    steps = Steps(num_pages=4096, max_running=1, max_step_tokens=64)
    prompt = tokens(12)
    warm(steps, prompt)
    cold = add(steps, tokens(4))
    num_before = 0
    while True:
        add(steps, (*prompt, *tokens(1)))
        add(steps, (*prompt, *tokens(1)))
        if cold in steps.step():
            break
        num_before += 1
        assert num_before <= MAX_OVERTAKEN, "starved"
    assert num_before == MAX_OVERTAKEN


def test_prompt_logprobs_have_their_part_of_the_prompt_computed_again() -> None:
    steps, prompt = Steps(max_step_tokens=64), tokens(16)
    warm(steps, prompt)
    whole = steps.add(prompt, 1, namespace=SHARED, readout=ReadoutParams(num_top=0, prompt_from=0))
    assert steps.step() == {whole: 16}
    part = steps.add(prompt, 1, namespace=SHARED, readout=ReadoutParams(num_top=0, prompt_from=9))
    plan = steps.launch()
    assert fed(plan) == {part: 8}
    assert plan is not None
    assert plan.rows[0].target_start == 9
    assert plan.rows[0].target_ids == prompt[9:]
    steps.finish()
    # The copy of what was cached already is not kept.
    assert steps.scheduler.tree.num_pages == 4
    steps.check_idle()


def test_unused_pages_are_evicted_before_anybody_is_preempted() -> None:
    steps = Steps(num_pages=8, max_step_tokens=64)
    warm(steps, tokens(16))
    warm(steps, tokens(12))
    assert steps.pool.statistics().cached == 7
    growing = add(steps, tokens(8), max_tokens=20)
    finish_all(steps)
    assert growing.num_output == 20
    assert steps.scheduler.num_preemptions == 0
    assert steps.scheduler.tree.num_evicted > 0


def test_an_admission_that_does_not_fit_evicts_nothing() -> None:
    steps = Steps(num_pages=8, max_step_tokens=64)
    busy = add(steps, tokens(14), max_tokens=3)
    steps.step()
    warm_pages = steps.scheduler.tree.num_pages
    large = add(steps, tokens(28))
    steps.step()
    assert is_waiting(large)
    assert is_running(busy)
    assert steps.scheduler.tree.num_pages == warm_pages
    finish_all(steps)
    assert large.num_output == 1


def test_a_preempted_sequence_finds_its_pages_again_unless_they_were_needed() -> None:
    steps = Steps(num_pages=6, max_step_tokens=64)
    old, new = add(steps, tokens(8), max_tokens=6), add(steps, tokens(8), max_tokens=6)
    while new.num_preemptions == 0:
        steps.step()
    finish_all(steps)
    assert (old.num_output, new.num_output) == (6, 6)
    assert steps.scheduler.num_recomputed_tokens < new.num_preemptions * 8
    # What was found again is no prompt token taken from the cache at admission.
    assert num_cached(new) == 0
    steps.check_idle()


def test_a_page_that_is_cached_while_steps_read_it_is_not_used_again_before_they_retire() -> None:
    steps = Steps(num_pages=4, max_step_tokens=64)
    first = add(steps, tokens(8), max_tokens=8)
    steps.step()
    steps.launch()
    assert first.lease is not None
    shared = set(first.lease.page_ids[: first.lease.num_shared])
    assert len(shared) == 2
    steps.scheduler.end(first)
    steps.scheduler.tree.flush()
    assert shared <= steps.pool.pages_in(PageState.QUARANTINED)
    assert add(steps, tokens(12)) is not None
    assert steps.launch() is None
    steps.finish()
    assert steps.pool.pages_in(PageState.QUARANTINED) == set()
    assert steps.launch() is not None


def test_a_sequence_without_a_namespace_neither_finds_nor_leaves_anything() -> None:
    steps, prompt = Steps(max_step_tokens=64), tokens(8)
    warm(steps, prompt)
    alone = steps.add(prompt, 1)
    assert steps.step() == {alone: 8}
    assert num_cached(alone) == 0
    steps.add(tokens(8), 1)
    finish_all(steps)
    assert steps.scheduler.tree.num_pages == 2


def test_held_tokens_count_shared_pages_once() -> None:
    steps, prompt = Steps(max_step_tokens=64), tokens(8)
    warm(steps, prompt)
    assert steps.scheduler.num_held_tokens == 0
    for _ in range(3):
        add(steps, (*prompt, *tokens(1)), max_tokens=9)
    steps.step()
    assert steps.scheduler.num_held_tokens == 8 + 3


def test_a_reader_that_stalls_keeps_its_shared_pages_locked() -> None:
    steps, prompt = Steps(num_pages=16, max_step_tokens=64), tokens(8)
    stalled = steps.add(prompt, 9, room=1, namespace=SHARED)
    steps.step()
    steps.launch()
    assert num_held(stalled) == 2
    assert steps.scheduler.tree.evict(2) == 0
    steps.readers[stalled].room = 100
    finish_all(steps)
    assert stalled.num_output == 9


def test_the_newest_is_not_the_victim_twice_in_a_row_while_another_one_can_be() -> None:
    steps = Steps(num_pages=6, max_step_tokens=64)
    old, middle, new = (steps.plant(9, num_planned=8) for _ in range(3))
    steps.scheduler._last_victim = new.id
    steps.launch()
    assert is_waiting(middle)
    assert is_running(old)
    assert is_running(new)
    assert steps.scheduler._last_victim == middle.id


def test_the_last_victim_is_one_again_if_no_other_is_newer_than_the_one_in_need() -> None:
    steps = Steps(num_pages=4, max_step_tokens=64)
    old, new = (steps.plant(9, num_planned=8) for _ in range(2))
    steps.scheduler._last_victim = new.id
    steps.launch()
    assert is_waiting(new)
    assert is_running(old)


def test_nobody_is_admitted_into_pages_that_the_batch_is_about_to_need() -> None:
    steps = Steps(num_pages=3, max_step_tokens=64)
    old = steps.add(4)
    steps.step()
    new = steps.add(4)
    assert steps.step() == {old: 1}
    assert is_waiting(new)
