"""Reading logprobs: right, in order, and one value a token wherever it appears."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioserve.core import ReadoutParams, TokenLogprobs
from trioserve.sampling.logprobs import read_logprobs


def exact_logprobs(row: np.ndarray) -> list[float]:
    """log-softmax with exact sums."""
    largest = float(row.max())
    total = math.fsum(math.exp(float(x) - largest) for x in row)
    return [float(x) - largest - math.log(total) for x in row]


@settings(max_examples=150, deadline=None)
@given(
    logit_seed=st.integers(0, 2**32 - 1),
    vocab=st.integers(1, 900),
    scale=st.sampled_from([0.0, 0.1, 5.0, 60.0]),
    shift=st.sampled_from([0.0, -300.0, 1e4]),
    has_ties=st.booleans(),
    num_top=st.integers(0, 25),
)
def test_logprobs_are_those_of_an_exact_log_softmax(
    logit_seed: int, vocab: int, scale: float, shift: float, has_ties: bool, num_top: int
) -> None:
    generator = np.random.default_rng(logit_seed)
    row = (generator.normal(0, scale, vocab) + shift).astype(np.float32)
    if has_ties:
        row = np.round(row)
    before = row.copy()
    token_id = int(generator.integers(vocab))
    chosen_ids = tuple(generator.integers(vocab, size=3).tolist())
    read = read_logprobs(row, token_id, ReadoutParams(num_top=num_top, token_ids=chosen_ids))
    expected = exact_logprobs(row)
    order = sorted(range(vocab), key=lambda i: (-row[i], i))[:num_top]
    assert [i for i, _ in read.top] == order
    assert read.logprob == pytest.approx(expected[token_id], abs=1e-6)
    assert [value for _, value in read.top] == pytest.approx([expected[i] for i in order], abs=1e-6)
    assert list(read.chosen) == pytest.approx([expected[i] for i in chosen_ids], abs=1e-6)
    assert np.array_equal(row, before)


@settings(max_examples=60, deadline=None)
@given(logit_seed=st.integers(0, 2**32 - 1), offset=st.integers(0, 17))
def test_a_token_shows_the_same_bits_wherever_it_is_read(logit_seed: int, offset: int) -> None:
    vocab = 1003
    generator = np.random.default_rng(logit_seed)
    flat = generator.normal(0, 7, offset + vocab).astype(np.float32)
    row = flat[offset:]  # at any alignment
    everything = read_logprobs(row.copy(), 0, ReadoutParams(num_top=vocab))
    value_of = dict(everything.top)
    assert len(value_of) == vocab
    some = tuple(generator.permutation(vocab)[:50].tolist())
    assert read_logprobs(row, 0, ReadoutParams(num_top=0, token_ids=some)).chosen == tuple(
        value_of[i] for i in some
    )
    for token_id in some:
        assert read_logprobs(row, token_id, ReadoutParams(num_top=0)).logprob == value_of[token_id]


def test_no_top_gives_the_token_alone() -> None:
    row = np.array([0.0, 0.0], np.float32)
    read = read_logprobs(row, 1, ReadoutParams(num_top=0))
    assert read == TokenLogprobs(logprob=-math.log(2.0))


def test_more_top_than_tokens_gives_all_of_them() -> None:
    row = np.array([1.0, 3.0, 2.0], np.float32)
    assert [i for i, _ in read_logprobs(row, 0, ReadoutParams(num_top=20)).top] == [1, 2, 0]


def test_logits_at_both_ends_of_the_range_give_finite_logprobs() -> None:
    row = np.array([3e38, -3e38, 0.0], np.float32)
    read = read_logprobs(row, 1, ReadoutParams(num_top=3))
    assert read.top[0] == (0, 0.0)
    assert math.isfinite(read.logprob)


def test_logprobs_of_a_large_flat_vocabulary_lose_nothing() -> None:
    # A sum of singles, one after the other, would stop growing.
    row = np.full(3_000_000, 2.5, np.float32)
    read = read_logprobs(row, 9, ReadoutParams(num_top=0))
    assert read.logprob == pytest.approx(-math.log(3_000_000), abs=1e-9)
