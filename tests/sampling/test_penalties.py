"""Bias, penalties and mask: against a slow reference, and what they do to draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling.test_sampler import allowed_tokens
from trioserve.core import SamplingParams
from trioserve.errors import RequestFailed
from trioserve.sampling.penalties import adjusted_logits
from trioserve.sampling.row import Draw
from trioserve.sampling.sampler import draw_token

VOCAB = 40


def slow_adjusted(row: list[float], draw: Draw) -> list[float]:
    """The API's sentences one after the other, a token at a time."""
    params = draw.sampling
    generated = draw.history[draw.num_prompt :]
    adjusted = []
    for token, logit in enumerate(row):
        logit += dict(params.logit_bias).get(token, 0.0)
        if token in draw.history:
            if logit > 0:
                logit /= params.repetition_penalty
            else:
                logit *= params.repetition_penalty
        logit -= params.frequency_penalty * generated.count(token)
        if token in generated:
            logit -= params.presence_penalty
        adjusted.append(-np.inf if token in draw.masked_ids else logit)
    return adjusted


@pytest.mark.parametrize("num_bits", [VOCAB, VOCAB - 9, VOCAB + 15])
@pytest.mark.parametrize("allowed", [{3}, {0, 7, 30}, set(range(VOCAB)) - {5}, set(range(20, 31))])
def test_only_what_a_grammar_allows_is_left(allowed: set[int], num_bits: int) -> None:
    bits = np.zeros(num_bits, np.uint8)
    bits[[token for token in allowed if token < num_bits]] = 1
    row = np.arange(VOCAB, dtype=np.float32)
    before = row.copy()
    packed = np.packbits(bits, bitorder="little").data
    draw = Draw(SamplingParams(), 0, 5, masked_ids=frozenset({7}), allowed=packed)
    left = {token for token in allowed if token < min(num_bits, VOCAB)} - {7}
    adjusted = adjusted_logits(row, draw)
    assert np.flatnonzero(adjusted > -np.inf).tolist() == sorted(left)
    assert all(adjusted[token] == row[token] for token in left)
    assert (row == before).all()


tokens = st.integers(0, VOCAB - 1)
# Sixteenths, so that single precision adds them exactly.
sixteenths = st.integers(-32, 32).map(lambda n: n / 16)
sampling_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-5, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    top_k=st.sampled_from([-1, 0, 1, 3, 30]),
    min_p=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 2**32),
    frequency_penalty=st.one_of(st.just(0.0), sixteenths),
    presence_penalty=st.one_of(st.just(0.0), sixteenths),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.25, 2.0, 1.1]),
    logit_bias=st.dictionaries(tokens, st.integers(-100, 100).map(float), max_size=5).map(
        lambda bias: tuple(bias.items())
    ),
)


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    history = draw(st.lists(tokens, min_size=1, max_size=30))
    return Draw(
        draw(sampling_params),
        sample_index=draw(st.integers(0, 127)),
        position=len(history),
        num_prompt=draw(st.integers(1, len(history))),
        history=tuple(history),
        masked_ids=frozenset(draw(st.sets(tokens, max_size=VOCAB - 1))),
    )


rows = st.lists(st.integers(-80, 80).map(lambda n: n / 8), min_size=VOCAB, max_size=VOCAB)


@settings(max_examples=300, deadline=None)
@given(logits=rows, draw=draws())
def test_logits_are_adjusted_as_the_api_describes_it(logits: list[float], draw: Draw) -> None:
    row = np.array(logits, np.float32)
    before = row.copy()
    adjusted = adjusted_logits(row, draw)
    assert np.array_equal(row, before), "logprobs are read from the same row"
    assert adjusted.dtype == np.float32
    np.testing.assert_allclose(adjusted, slow_adjusted(logits, draw), rtol=1e-6, atol=1e-6)


@settings(max_examples=300, deadline=None)
@given(logits=rows, draw=draws())
def test_what_is_drawn_passes_every_stage(logits: list[float], draw: Draw) -> None:
    token = draw_token(np.array(logits, np.float32), draw)
    adjusted = np.array(slow_adjusted(logits, draw), np.float32)
    assert token not in draw.masked_ids
    if draw.is_greedy:
        assert adjusted[token] >= adjusted.max() - 1e-5
    else:
        # What rounding may have moved over an edge is let in.
        params = draw.sampling
        lenient = SamplingParams(
            params.temperature,
            min(1.0, params.top_p * (1 + 1e-5)),
            params.top_k,
            params.min_p * (1 - 1e-5),
        )
        allowed = allowed_tokens(adjusted, lenient)
        lowest = min(float(adjusted[i]) for i in allowed)
        assert token in allowed or adjusted[token] == pytest.approx(lowest, abs=1e-5)


def test_greedy_takes_the_lowest_id_of_a_tie_that_a_penalty_made() -> None:
    row = np.array([1.0, 0.0, 2.0, 0.5], np.float32)
    params = SamplingParams(temperature=0.0, presence_penalty=1.0)
    assert draw_token(row, Draw(params, 0, 2, num_prompt=1, history=(3, 2))) == 0


def test_a_token_of_the_prompt_counts_for_repetition_alone() -> None:
    row = np.array([4.0, -4.0, 4.0, -4.0], np.float32)
    params = SamplingParams(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    history = (0, 0, 1, 2, 2, 3)
    adjusted = adjusted_logits(row, Draw(params, 0, 6, num_prompt=3, history=history))
    assert adjusted.tolist() == [2.0, -8.0, 2.0 - 1.25, -8.0 - 0.75]


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 0.01, 1.0, 2.0])
def test_a_bias_of_100_forces_and_of_minus_100_bans(temperature: float) -> None:
    row = np.random.default_rng(5).normal(0, 6, 1000).astype(np.float32)
    best, worst = int(row.argmax()), int(row.argmin())
    for seed in range(100):
        force = SamplingParams(temperature=temperature, seed=seed, logit_bias=((worst, 100.0),))
        ban = SamplingParams(temperature=temperature, seed=seed, logit_bias=((best, -100.0),))
        assert draw_token(row, Draw(force, 0, 1)) == worst
        assert draw_token(row, Draw(ban, 0, 1)) != best


def test_a_forced_end_token_that_is_masked_is_not_drawn() -> None:
    row = np.zeros(50, np.float32)
    params = SamplingParams(logit_bias=((7, 100.0), (9, 60.0)))
    for seed in range(50):
        draw = Draw(SamplingParams(seed=seed, logit_bias=params.logit_bias), 0, 1)
        assert draw_token(row, draw) == 7
        masked = Draw(draw.sampling, 0, 1, masked_ids=frozenset({7}))
        assert draw_token(row, masked) == 9


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(),
        SamplingParams(top_k=40),
        SamplingParams(top_p=0.999),
        SamplingParams(min_p=0.001, temperature=1e-6),
    ],
)
def test_the_only_token_that_is_not_masked_is_drawn(sampling: SamplingParams) -> None:
    row = np.zeros(700, np.float32)
    row[600] = -90.0
    masked_ids = frozenset(range(700)) - {600}
    for position in range(30):
        assert draw_token(row, Draw(sampling, 0, position, masked_ids=masked_ids)) == 600


def test_a_mask_over_everything_fails_the_row() -> None:
    draw = Draw(SamplingParams(), 0, 1, masked_ids=frozenset(range(VOCAB)))
    with pytest.raises(RequestFailed, match="every token is masked"):
        draw_token(np.zeros(VOCAB, np.float32), draw)


def test_end_tokens_beyond_the_vocabulary_are_masked_without_harm() -> None:
    row = np.array([0.0, 1.0, 2.0], np.float32)
    draw = Draw(SamplingParams(temperature=0.0), 0, 1, masked_ids=frozenset({2, 3, 99}))
    assert draw_token(row, draw) == 1


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=0.0, repetition_penalty=1e-300),
        SamplingParams(temperature=1.0, repetition_penalty=1e-300),
        SamplingParams(temperature=0.0, logit_bias=((1, 100.0),), repetition_penalty=1e-40),
    ],
)
def test_a_penalty_that_leaves_the_range_of_numbers_fails_the_row(sampling: SamplingParams) -> None:
    draw = Draw(sampling, 0, 2, num_prompt=2, history=(0, 1))
    with pytest.raises(RequestFailed, match="penalty makes the logits non-finite"):
        draw_token(np.array([1.0, 2.0, 3.0], np.float32), draw)


def test_penalties_without_a_generated_token_change_nothing() -> None:
    row = np.arange(5, dtype=np.float32)
    params = SamplingParams(presence_penalty=2.0, frequency_penalty=2.0)
    draw = Draw(params, 0, 3, num_prompt=3, history=(4, 4, 4))
    assert adjusted_logits(row, draw).tolist() == row.tolist()
