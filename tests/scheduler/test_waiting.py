"""The queue keeps the order of arrival, whoever leaves and comes back."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioserve.core import SamplingParams, SequenceId
from trioserve.scheduler.sequence import Sequence
from trioserve.scheduler.waiting import WaitingQueue


def sequence(number: int) -> Sequence:
    return Sequence(SequenceId(number), (1,), 1, SamplingParams(), 0, lambda: 1)


def test_a_sequence_that_comes_back_takes_its_old_place() -> None:
    queue = WaitingQueue()
    first, second, third = (sequence(number) for number in (1, 2, 3))
    for waiting in (first, second, third):
        queue.add(waiting)
    queue.remove(first)
    queue.remove(second)
    queue.add(second)
    queue.add(first)
    assert list(queue) == [first, second, third]


def test_removing_what_is_not_there_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="does not wait"):
        WaitingQueue().remove(sequence(1))


def test_sequences_may_leave_and_come_while_the_queue_is_walked() -> None:
    queue = WaitingQueue()
    for number in (2, 4, 6):
        queue.add(sequence(number))
    seen = []
    for waiting in queue:
        seen.append(waiting.id)
        queue.remove(waiting)
        queue.add(sequence(waiting.id + 1))
    assert seen == [2, 4, 6]
    assert [waiting.id for waiting in queue] == [3, 5, 7]


@given(st.lists(st.integers(0, 30)))
def test_the_queue_is_a_sorted_list(numbers: list[int]) -> None:
    queue = WaitingQueue()
    model: dict[int, Sequence] = {}
    for number in numbers:
        if number in model:
            queue.remove(model.pop(number))
        else:
            model[number] = sequence(number)
            queue.add(model[number])
        assert len(queue) == len(model)
        assert list(queue) == [model[key] for key in sorted(model)]


def test_the_samples_of_a_prompt_share_its_tokens_while_they_wait() -> None:
    prompt_ids = tuple(range(100_000))
    tracemalloc.start()
    try:
        queue = WaitingQueue()
        for number in range(10):
            queue.add(Sequence(SequenceId(number), prompt_ids, 1, SamplingParams(), 0, lambda: 1))
        assert [waiting.num_missing for waiting in queue] == [len(prompt_ids)] * 10
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_bytes < len(prompt_ids)
