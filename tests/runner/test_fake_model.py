"""The fake model keeps the promises of a real one where a row asks for more than a token."""

import math
from typing import Any

import numpy as np
import pytest

from trioserve.core import ReadoutParams, SamplingParams, SequenceId, StepNumber
from trioserve.device.base import StepResult
from trioserve.kv.pool import PagePool
from trioserve.scheduler.scheduler import Scheduler, SchedulerLimits
from trioserve.scheduler.sequence import Sequence
from trioserve.testing.fake_model import LETTERS, FakeRunner, continuation, next_token
from trioserve.testing.fake_readout import HIDDEN_SIZE, VOCAB_SIZE, fake_logprobs, fake_state

PROMPT = (72, 101, 108, 108, 111)
EVERYTHING = ReadoutParams(num_top=4, prompt_from=1, token_ids=(7, 8), has_hidden_state=True)


def play(
    max_tokens: int, *, chunk: int = 64, sample_index: int = 0, **asked: Any
) -> tuple[list[int], list[StepResult]]:
    """One sequence alone, two steps in flight: its tokens, and every result."""
    pool, runner = PagePool(64), FakeRunner(64, 4)
    scheduler = Scheduler(pool, SchedulerLimits(4, 4, chunk))
    sequence = Sequence(
        id=SequenceId(1),
        prompt_ids=PROMPT,
        max_tokens=max_tokens,
        sampling=asked.pop("sampling", SamplingParams()),
        sample_index=sample_index,
        credit=lambda: 1000,
        **asked,
    )
    scheduler.add(sequence)
    results, in_flight = [], []
    for number in range(1, 200):
        plan = scheduler.plan(StepNumber(number))
        if plan is not None:
            in_flight.append(plan)
        if not in_flight:
            break
        if len(in_flight) == 2 or plan is None:
            results.append(runner.compute(in_flight[0]))
            token_id = results[-1].token_ids[0]
            if token_id is not None:
                sequence.append(token_id)
            in_flight.pop(0)
    return sequence.token_ids[len(PROMPT) :], results


@pytest.mark.parametrize("sample_index", [0, 3])
def test_asking_for_readouts_changes_no_token(sample_index: int) -> None:
    tokens, _ = play(9, sample_index=sample_index, readout=EVERYTHING)
    assert tokens == continuation(PROMPT, 9, sample_index)


def test_plain_rows_have_no_readout() -> None:
    assert not any(result.readouts for result in play(5)[1])


@pytest.mark.parametrize("chunk", [1, 2, 64])
def test_readouts_are_functions_of_the_prefix_whatever_the_chunks(chunk: int) -> None:
    tokens, results = play(4, chunk=chunk, readout=EVERYTHING)
    readouts = [result.readouts[0] for result in results if result.readouts]
    read = [logprobs for readout in readouts for logprobs in readout.prompt]
    read += [readout.sampled for readout in readouts if readout.sampled is not None]
    vectors = [readout.vector for readout in readouts if readout.vector is not None]
    whole = (*PROMPT, *tokens)
    assert len(read) == len(whole) - 1
    for position, logprobs in enumerate(read, start=1):
        expected = fake_logprobs(whole[:position])
        assert logprobs.logprob == expected[whole[position]]
        assert logprobs.chosen == expected[7:9]
        assert [value for _, value in logprobs.top] == sorted(expected, reverse=True)[:4]
        assert all(expected[token_id] == value for token_id, value in logprobs.top)
    assert len(vectors) == 4
    for index, vector in enumerate(vectors):
        assert vector.dtype == np.float32
        assert vector.tolist() == fake_state(whole[: len(PROMPT) + index])
        assert len(vector) == HIDDEN_SIZE


def test_logprobs_are_those_of_a_distribution_whose_best_is_the_first_samples_token() -> None:
    logprobs = fake_logprobs(PROMPT)
    assert len(logprobs) == VOCAB_SIZE
    assert math.fsum(math.exp(value) for value in logprobs) == pytest.approx(1.0)
    assert all(math.isfinite(value) and value < 0.0 for value in logprobs)
    assert logprobs.index(max(logprobs)) == next_token(PROMPT)


def test_a_sequence_of_no_tokens_has_its_prompt_and_its_last_state_read() -> None:
    tokens, results = play(0, chunk=2, readout=EVERYTHING)
    assert tokens == []
    readouts = [result.readouts[0] for result in results if result.readouts]
    assert sum(len(readout.prompt) for readout in readouts) == len(PROMPT) - 1
    (vector,) = [readout.vector for readout in readouts if readout.vector is not None]
    assert vector.tolist() == fake_state(PROMPT)


def test_masked_tokens_are_not_drawn_while_they_are_masked() -> None:
    plain = continuation(PROMPT, 8)
    tokens, _ = play(8, end_ids=frozenset(plain), min_tokens=5)
    assert not set(tokens[:5]) & set(plain)
    assert set(tokens) <= set(LETTERS)
    unmasked, _ = play(8, end_ids=frozenset(LETTERS) - {97}, min_tokens=8)
    assert unmasked == [97] * 8


def test_a_mask_over_everything_fails_the_row() -> None:
    _, results = play(1, end_ids=frozenset(LETTERS), min_tokens=1)
    assert results[0].token_ids == (None,)
    assert "masked" in results[0].failures[0].message


def test_a_bias_of_100_forces_and_of_minus_100_bans() -> None:
    assert play(4, sampling=SamplingParams(logit_bias=((200, 100.0),)))[0] == [200] * 4
    (first,) = continuation(PROMPT, 1)
    assert first not in play(12, sampling=SamplingParams(logit_bias=((first, -100.0),)))[0]
    mild = SamplingParams(logit_bias=((200, 5.0), (first, -5.0)))
    assert play(4, sampling=mild)[0] == continuation(PROMPT, 4)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(presence_penalty=0.1), SamplingParams(frequency_penalty=2.0)]
)
def test_penalties_avoid_what_was_generated_as_long_as_they_can(sampling: SamplingParams) -> None:
    assert len(set(continuation(PROMPT, 26))) < 26
    assert sorted(play(26, sampling=sampling)[0]) == list(LETTERS)
    assert len(play(40, sampling=sampling)[0]) == 40


def test_repetition_penalty_avoids_the_prompt_too() -> None:
    tokens, _ = play(10, sampling=SamplingParams(repetition_penalty=1.2))
    assert len({*tokens, *PROMPT}) == 10 + len(set(PROMPT))
    encouraged = SamplingParams(repetition_penalty=0.9, presence_penalty=-1.0)
    assert play(10, sampling=encouraged)[0] == continuation(PROMPT, 10)
