"""How decode and prefill share the tokens of one step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioserve.scheduler.budget import StepBudget


def test_prefill_gets_what_decode_leaves() -> None:
    budget = StepBudget(max_step_tokens=16, num_decoding=5)
    assert budget.grant(100) == 11
    budget.spend(100, 11)
    assert budget.grant(100) == 0


def test_a_short_prompt_takes_only_what_it_needs() -> None:
    budget = StepBudget(max_step_tokens=16, num_decoding=0)
    assert budget.grant(6) == 6
    budget.spend(6, 6)
    assert budget.grant(100) == 10


def test_a_full_decode_batch_leaves_a_quarter_to_prefill() -> None:
    assert StepBudget(max_step_tokens=16, num_decoding=64).grant(100) == 4


@pytest.mark.parametrize("max_step_tokens", [1, 2, 3])
def test_prefill_moves_even_in_the_smallest_step(max_step_tokens: int) -> None:
    assert StepBudget(max_step_tokens, num_decoding=64).grant(100) == 1


def test_decode_is_granted_when_prefill_has_spent_everything() -> None:
    budget = StepBudget(max_step_tokens=8, num_decoding=1)
    budget.spend(100, budget.grant(100))
    assert budget.grant(100) == 0
    assert budget.grant(1) == 1


def test_decode_does_not_spend_what_is_left_for_prefill() -> None:
    budget = StepBudget(max_step_tokens=8, num_decoding=2)
    budget.spend(1, 1)
    budget.spend(1, 1)
    assert budget.grant(100) == 6


def test_a_sequence_with_nothing_to_feed_is_granted_nothing() -> None:
    assert StepBudget(max_step_tokens=8, num_decoding=0).grant(0) == 0


@given(st.integers(1, 64), st.integers(0, 80), st.lists(st.integers(0, 100)))
def test_prefill_never_exceeds_its_share(
    max_step_tokens: int, num_decoding: int, missing: list[int]
) -> None:
    budget = StepBudget(max_step_tokens, num_decoding)
    num_prefilled = 0
    for num_missing in missing:
        num_fed = budget.grant(num_missing)
        assert 0 <= num_fed <= num_missing
        budget.spend(num_missing, num_fed)
        num_prefilled += num_fed if num_missing > 1 else 0
    reserve = max(1, max_step_tokens // 4)
    assert num_prefilled <= max(max_step_tokens - num_decoding, reserve)
