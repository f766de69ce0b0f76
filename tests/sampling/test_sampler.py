"""The sampler against a naive reference and the distribution it claims, alone and in a batch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioserve.core import SamplingParams
from trioserve.sampling.row import Draw
from trioserve.sampling.sampler import draw_token, uniform

GREEDY = SamplingParams(temperature=0.0)


def draw_one(logits: np.ndarray, sampling: SamplingParams, position: int = 0) -> int:
    return draw_token(np.asarray(logits, np.float32), Draw(sampling, 0, position))


def allowed_tokens(logits: np.ndarray, sampling: SamplingParams) -> dict[int, float]:
    """The filters as the API describes them, by sorting everything, in exact enough arithmetic."""
    scaled = [float(x) / sampling.temperature for x in logits]
    top = max(scaled)
    weights = {i: math.exp(x - top) for i, x in enumerate(scaled)}
    order = sorted(weights, key=lambda i: (-float(logits[i]), i))
    if sampling.top_k >= 1:
        order = order[: sampling.top_k]
    total = math.fsum(weights[i] for i in order)
    kept, reached = [], 0.0
    for i in order:
        kept.append(i)
        reached += weights[i] / total
        if reached >= sampling.top_p * (1 - 1e-6):
            break
    if sampling.top_p >= 1.0:
        kept = order
    kept = [i for i in kept if i == kept[0] or weights[i] >= sampling.min_p * weights[kept[0]]]
    total = math.fsum(weights[i] for i in kept)
    return {i: weights[i] / total for i in kept}


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    logits = np.array([0.0, 3.0, 1.0, 3.0, 3.0], np.float32)
    assert draw_one(logits, GREEDY) == 1
    assert draw_one(logits, SamplingParams(temperature=5e-7)) == 1
    assert draw_one(logits, SamplingParams(temperature=1.0, top_k=1, seed=9)) == 1


def test_tiny_temperature_is_finite_and_takes_the_best_token() -> None:
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 8, 1000).astype(np.float32)
    for position in range(50):
        params = SamplingParams(temperature=1e-4, seed=position)
        assert draw_one(logits, params, position) == int(logits.argmax())


def test_tiny_temperature_chooses_among_exact_ties() -> None:
    logits = np.full(600, -1.0, np.float32)
    logits[[7, 300, 599]] = 2.0
    drawn = {draw_one(logits, SamplingParams(temperature=1e-4, seed=s)) for s in range(60)}
    assert drawn == {7, 300, 599}


def test_huge_logits_do_not_overflow() -> None:
    logits = np.array([3e38, -3e38, 0.0], np.float32)
    assert draw_one(logits, SamplingParams(temperature=0.5)) == 0
    assert draw_one(logits, SamplingParams(temperature=0.5, top_p=0.9)) == 0


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    for top_p, expected in [(0.4, {0}), (0.5, {0}), (0.51, {0, 1}), (0.75, {0, 1})]:
        params = [SamplingParams(top_p=top_p, seed=s) for s in range(100)]
        assert {draw_one(logits, p) for p in params} == expected
    everything = {draw_one(logits, SamplingParams(top_p=0.99, seed=s)) for s in range(300)}
    assert everything == {0, 1, 2, 3}


def test_top_p_near_zero_keeps_one_token() -> None:
    logits = np.zeros(1000, np.float32)
    assert {draw_one(logits, SamplingParams(top_p=1e-9, seed=s)) for s in range(20)} == {0}


def test_top_k_prefers_the_lowest_ids_among_ties() -> None:
    logits = np.zeros(50, np.float32)
    logits[40] = 1.0
    drawn = {draw_one(logits, SamplingParams(top_k=3, seed=s)) for s in range(200)}
    assert drawn == {40, 0, 1}


def test_min_p_of_one_keeps_only_the_best() -> None:
    logits = np.array([0.0, 1.0, 1.0, -2.0], np.float32)
    assert {draw_one(logits, SamplingParams(min_p=1.0, seed=s)) for s in range(40)} == {1, 2}


def _chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.9),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.8),
        SamplingParams(min_p=0.1),
        SamplingParams(temperature=1.3, top_k=9, top_p=0.9, min_p=0.05),
    ],
)
def test_draws_follow_the_filtered_distribution(sampling: SamplingParams) -> None:
    generator = np.random.default_rng(11)
    logits = np.full(700, -60.0, np.float32)  # several blocks; the mass lies in both ends
    logits[:8] = generator.normal(0, 1, 8)
    logits[-8:] = generator.normal(0, 1, 8)
    expected = allowed_tokens(logits, sampling)
    num_draws = 4000
    drawn = [draw_one(logits, sampling, position) for position in range(num_draws)]
    likely = [i for i, p in expected.items() if p * num_draws >= 5]
    counts = np.array([drawn.count(i) for i in likely], np.float64)
    assert set(drawn) <= set(expected)
    statistic = _chi_square(counts, np.array([expected[i] for i in likely]) * num_draws)
    # The 99.99 % point of chi-square for up to 15 degrees of freedom is below 45.
    assert statistic < 45, (statistic, len(likely))


def test_noise_is_uniform_over_positions_samples_and_seeds() -> None:
    for values in (
        [uniform(5, 0, position) for position in range(2000)],
        [uniform(5, index, 7) for index in range(2000)],
        [uniform(seed, 0, 7) for seed in range(-1000, 1000)],
    ):
        counts = np.bincount((np.array(values) * 20).astype(int), minlength=20)
        assert counts.size == 20
        assert len(set(values)) == len(values)
        assert _chi_square(counts.astype(float), np.full(20, 100.0)) < 55


def test_negative_seeds_are_taken_modulo_two_to_the_64() -> None:
    assert uniform(-1, 0, 3) == uniform((1 << 64) - 1, 0, 3)
    assert uniform(-(1 << 63), 0, 3) != uniform((1 << 63) - 1, 0, 3)


def test_noise_does_not_change_between_releases() -> None:
    # A seeded request must repeat after an upgrade of the same build and model.
    assert uniform(42, 0, 17) == pytest.approx(0.4439797563407103, rel=1e-15)


params_strategy = st.builds(
    SamplingParams,
    temperature=st.floats(0.05, 2.0),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    top_k=st.sampled_from([-1, 0, 1, 2, 5, 40, 300, 10_000]),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    seed=st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=150, deadline=None)
@given(
    params=params_strategy,
    logit_seed=st.integers(0, 2**32 - 1),
    vocab=st.integers(2, 900),
    scale=st.sampled_from([0.1, 1.0, 6.0]),
    has_ties=st.booleans(),
)
def test_drawn_tokens_pass_the_filters(
    params: SamplingParams, logit_seed: int, vocab: int, scale: float, has_ties: bool
) -> None:
    logits = np.random.default_rng(logit_seed).normal(0, scale, vocab).astype(np.float32)
    if has_ties:
        logits = np.round(logits)
    slack = np.nextafter(np.float32(params.min_p), np.float32(0.0))  # float32 against double
    lenient = SamplingParams(
        params.temperature,
        min(1.0, params.top_p * (1 + 1e-5)),
        params.top_k,
        float(slack) * (1 - 1e-5),
        params.seed,
    )
    allowed = allowed_tokens(logits, lenient)
    for position in range(8):
        assert draw_one(logits, params, position) in allowed


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(
        st.tuples(params_strategy, st.integers(0, 127), st.integers(0, 8191)),
        min_size=1,
        max_size=12,
    ),
    logit_seed=st.integers(0, 1000),
)
def test_a_row_draws_the_same_token_whatever_stands_beside_it(
    requests: list[tuple[SamplingParams, int, int]], logit_seed: int
) -> None:
    generator = np.random.default_rng(logit_seed)
    logits = generator.normal(0, 3, (len(requests), 777)).astype(np.float32)
    draws = [Draw(*request) for request in requests]
    # Of an odd length, so that each row of the batch begins at another alignment.
    together = [draw_token(row, draw) for row, draw in zip(logits, draws, strict=True)]
    alone = [draw_token(row.copy(), draw) for row, draw in zip(logits, draws, strict=True)]
    assert together == alone


def test_samples_of_one_request_differ() -> None:
    logits = np.zeros((64, 1000), np.float32)
    params = SamplingParams(seed=4)
    drawn = [draw_token(row, Draw(params, i, 10)) for i, row in enumerate(logits)]
    assert len(set(drawn)) > 50
