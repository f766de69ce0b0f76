"""A row of logits: whether it can be used at all, and which of it are the most likely."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioserve.errors import RequestFailed
from trioserve.sampling.row import most_likely, require_finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 77, 499])
def test_one_logit_that_is_no_finite_number_is_found(bad: float, place: int) -> None:
    row = np.zeros(500, np.float32)
    require_finite(row)
    row[place] = bad
    with pytest.raises(RequestFailed, match="non-finite"):
        require_finite(row)


def test_infinities_that_cancel_are_found() -> None:
    row = np.array([np.inf, -np.inf, 0.0], np.float32)
    with pytest.raises(RequestFailed):
        require_finite(row)


@settings(deadline=None)
@given(
    values=st.lists(st.integers(-3, 3), min_size=1, max_size=60),
    num_masked=st.integers(0, 3),
    k=st.integers(0, 70),
)
def test_the_most_likely_are_those_of_a_stable_sort(
    values: list[int], num_masked: int, k: int
) -> None:
    row = np.array(values, np.float32)
    row[:num_masked] = -np.inf
    expected = sorted(range(row.size), key=lambda i: (-row[i], i))[:k]
    assert most_likely(row, k).tolist() == expected
