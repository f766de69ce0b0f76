"""Logprobs, states and penalties of the default model: transformers' values, our bits always."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from tests.correctness.conftest import MAX_CHUNK, MAX_RUNNING
from tests.correctness.plan_driver import Job
from tests.correctness.reference import MAX_TIE
from trioserve.core import ReadoutParams, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.correctness.reference import Reference

    Prompts = dict[str, tuple[int, ...]]
    Run = Callable[..., None]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

NAMES = ("capital", "chinese", "emoji", "code python", "digits")
NUM_OUTPUT = 12
NUM_TOP = 5
EVERYTHING = ReadoutParams(num_top=NUM_TOP, prompt_from=1, token_ids=(7, 0), has_hidden_state=True)
LONG = 260
"""Tokens of the long prompt that are read: several blocks of the head's, and chunk borders."""


@pytest.fixture(scope="module")
def texts(prompts: Prompts) -> Prompts:
    """Some prompts of all kinds, and a long one."""
    long_ids = prompts["two thousand tokens"][:LONG]
    return {name: prompts[name] for name in NAMES} | {"long": long_ids}


@pytest.fixture(scope="module")
def read(texts: Prompts, run: Run) -> dict[str, Job]:
    """Everything that can be read of each text, alone and in one chunk."""
    jobs = {name: Job(name, ids, NUM_OUTPUT, readout=EVERYTHING) for name, ids in texts.items()}
    for job in jobs.values():
        run([job], chunk=MAX_CHUNK, max_running=1)
    return jobs


def test_logprobs_of_prompt_and_output_are_those_of_transformers(
    read: dict[str, Job], reference: Reference
) -> None:
    for name, job in read.items():
        assert len(job.prompt_logprobs) == len(job.prompt_ids) - 1
        assert len(job.output_logprobs) == NUM_OUTPUT
        tokens = job.token_ids
        expected = reference.logprobs(tokens[:-1], len(tokens) - 1)
        ours = [*job.prompt_logprobs, *job.output_logprobs]
        for position, (logprobs, target_id, theirs) in enumerate(
            zip(ours, tokens[1:], expected, strict=True)
        ):
            where = (name, position)
            assert logprobs.logprob == pytest.approx(float(theirs[target_id]), abs=1e-3), where
            for token_id, value in logprobs.top:
                assert value == pytest.approx(float(theirs[token_id]), abs=1e-3), where
            best = theirs.topk(NUM_TOP).values.tolist()
            assert [value for _, value in logprobs.top] == pytest.approx(best, abs=1e-3), where
            assert list(logprobs.chosen) == pytest.approx(theirs[[7, 0]].tolist(), abs=1e-3), where


def test_which_prompt_tokens_are_the_best_is_what_transformers_says(
    read: dict[str, Job], reference: Reference
) -> None:
    num_greedy = 0
    for name, job in read.items():
        expected = reference.logits(job.prompt_ids[:-1], len(job.prompt_ids) - 1)
        for position, (logprobs, target_id, theirs) in enumerate(
            zip(job.prompt_logprobs, job.prompt_ids[1:], expected, strict=True)
        ):
            # As lm-evaluation-harness asks it: exact equality with the largest value.
            is_greedy = logprobs.logprob == max(value for _, value in logprobs.top)
            values, ids = theirs.topk(2)
            if values[0] - values[1] > MAX_TIE:
                assert is_greedy == (int(ids[0]) == target_id), (name, position)
            num_greedy += is_greedy
    assert num_greedy > 50, "no claim is proved by a prompt without any"


def test_hidden_states_are_those_of_transformers(
    read: dict[str, Job], reference: Reference
) -> None:
    for job in read.values():
        assert len(job.vectors) == NUM_OUTPUT
        for index in (0, NUM_OUTPUT - 1):
            tokens = job.token_ids[: len(job.prompt_ids) + index]
            ours = torch.from_numpy(job.vectors[index])
            torch.testing.assert_close(ours, reference.state(tokens), rtol=0.0, atol=1e-3)


@pytest.mark.parametrize(("chunk", "max_running"), [(37, 1), (16, MAX_RUNNING)])
def test_what_is_read_has_the_same_bits_in_any_chunks_and_batch(
    chunk: int, max_running: int, read: dict[str, Job], texts: Prompts, run: Run
) -> None:
    jobs = [
        Job(name, ids, NUM_OUTPUT, arrives_at=1 + 2 * index, readout=EVERYTHING)
        for index, (name, ids) in enumerate(texts.items())
    ]
    plain = [
        Job(
            f"beside {index}",
            texts["long"][11 * index :][: 30 + 20 * index],
            num_wanted=25,
            arrives_at=1 + 3 * index,
            cancelled_at=12 if index == 2 else None,
            sampling=SamplingParams(temperature=1.2, seed=index, repetition_penalty=1.3),
        )
        for index in range(5 if max_running > 1 else 0)
    ]
    run([*plain, *jobs], chunk=chunk, max_running=max_running)
    for job in jobs:
        alone = read[job.name]
        assert job.output_ids == alone.output_ids, job.name
        assert job.logit_hashes == alone.logit_hashes, job.name
        assert job.prompt_logprobs == alone.prompt_logprobs, job.name
        assert job.output_logprobs == alone.output_logprobs, job.name
        ours, theirs = ([v.tobytes() for v in held.vectors] for held in (job, alone))
        assert ours == theirs, job.name


def test_reading_changes_no_token(read: dict[str, Job], texts: Prompts, run: Run) -> None:
    for name in ("capital", "long"):
        plain = Job(name, texts[name], NUM_OUTPUT)
        run([plain], chunk=64, max_running=1)
        assert plain.output_ids == read[name].output_ids


def test_a_prompt_after_which_nothing_is_drawn_is_read_alike(
    read: dict[str, Job], texts: Prompts, run: Run
) -> None:
    jobs = [Job(name, ids, 0, readout=EVERYTHING) for name, ids in texts.items()]
    run(jobs, chunk=48, max_running=3)
    for job in jobs:
        alone = read[job.name]
        assert job.prompt_logprobs == alone.prompt_logprobs
        assert not job.output_ids
        assert not job.output_logprobs
        (vector,) = job.vectors
        assert vector.tobytes() == alone.vectors[0].tobytes()


def test_tokens_forced_one_by_one_score_what_the_prompt_scores(
    read: dict[str, Job], texts: Prompts, run: Run
) -> None:
    # A decode step's logprob of a token, and that of the same token as part of a prompt.
    job = read["capital"]
    whole = Job("whole", job.token_ids, 0, readout=EVERYTHING)
    run([whole], chunk=MAX_CHUNK, max_running=1)
    assert whole.prompt_logprobs == [*job.prompt_logprobs, *job.output_logprobs]


@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_repetition_penalty_is_that_of_transformers(
    penalty: float, texts: Prompts, reference: Reference, run: Run
) -> None:
    penalize = RepetitionPenaltyLogitsProcessor(penalty)
    for name in ("digits", "code python"):
        sampling = SamplingParams(temperature=0.0, repetition_penalty=penalty)
        job = Job(name, texts[name], 24, sampling=sampling)
        run([job], chunk=MAX_CHUNK, max_running=1)
        logits = reference.logits(job.token_ids[:-1], 24)
        for index, row in enumerate(logits):
            seen = torch.tensor([job.token_ids[: len(job.prompt_ids) + index]])
            check_greedy(job, index, penalize(seen, row[None].clone())[0])


def test_frequency_and_presence_penalties_count_what_was_generated(
    texts: Prompts, reference: Reference, run: Run
) -> None:
    sampling = SamplingParams(temperature=0.0, frequency_penalty=1.8, presence_penalty=0.5)
    num_changed = 0
    for name in ("digits", "code python"):
        job = Job(name, texts[name], 24, sampling=sampling)
        run([job], chunk=MAX_CHUNK, max_running=1)
        logits = reference.logits(job.token_ids[:-1], 24)
        for index, row in enumerate(logits):
            generated = torch.tensor(job.output_ids[:index], dtype=torch.long)
            counts = torch.bincount(generated, minlength=row.numel())
            check_greedy(job, index, row - 1.8 * counts - 0.5 * (counts > 0))
            num_changed += int(row.argmax()) != job.output_ids[index]
    assert num_changed > 5, "penalties that change nothing prove nothing"


def check_greedy(job: Job, index: int, expected: torch.Tensor) -> None:
    """The job's token is the best of these logits, unless the two best are a tie."""
    values, ids = expected.topk(2)
    if values[0] - values[1] > MAX_TIE:
        assert job.output_ids[index] == int(ids[0]), (job.name, index)
