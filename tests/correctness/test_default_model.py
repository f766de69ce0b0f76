"""The default model against transformers in float32, and against itself in every setting.

The reference is asked once a prompt, about our whole output. That proves both promises: each of
our tokens is its best one given the tokens before (teacher-forced), and so, by induction, its own
free-running text is ours up to the first tie.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.correctness.conftest import MAX_CHUNK, MAX_RUNNING, NUM_TOKENS
from tests.correctness.plan_driver import Job
from tests.correctness.reference import MAX_TIE, find_excuses
from trioserve.core import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.correctness.reference import Reference

    Prompts = dict[str, tuple[int, ...]]
    Run = Callable[..., None]

RUN_TO_THE_END = ("capital", "chinese", "two thousand tokens")

# A minute on two free cores; a busy machine takes several times as long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_greedy_text_is_that_of_transformers_up_to_ties(
    alone: dict[str, Job], reference: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(alone) >= 20
    excuses = []
    num_positions = 0
    for job in alone.values():
        assert len(job.output_ids) == NUM_TOKENS
        positions = reference.positions(job.prompt_ids, job.output_ids)
        excuses += find_excuses(job.name, job.output_ids, positions)
        num_positions += len(positions)
    with capsys.disabled():
        sys.stdout.write(f"\n{num_positions} positions, excused: {len(excuses)}\n")
        sys.stdout.writelines(f"  {excuse}\n" for excuse in excuses)
    assert len(excuses) <= num_positions / 100


def test_text_that_transformers_runs_freely_is_ours_up_to_the_first_tie(
    alone: dict[str, Job], reference: Reference
) -> None:
    job = alone["list"]
    free_ids = reference.generate(job.prompt_ids, 32)
    positions = reference.positions(job.prompt_ids, free_ids)
    for ours, free_id, position in zip(job.output_ids, free_ids, positions, strict=False):
        if position.gap <= MAX_TIE:
            break
        assert ours == free_id == position.best_id


def test_answers_are_sensible(alone: dict[str, Job], decode: Callable[[list[int]], str]) -> None:
    assert "Paris" in decode(alone["capital"].output_ids)


@pytest.mark.parametrize("chunk", [16, MAX_CHUNK])
def test_a_full_batch_with_arrivals_and_cancels_changes_no_bit(
    chunk: int, alone: dict[str, Job], prompts: Prompts, run: Run
) -> None:
    jobs = [
        # The last prompt, the long one, comes first, so that it is read beside the others.
        Job(name, ids, NUM_TOKENS, arrives_at=1 + 2 * index)
        for index, (name, ids) in enumerate(reversed(prompts.items()))
    ]
    run(jobs + _passers_by(prompts), chunk=chunk, max_running=MAX_RUNNING)
    for job in jobs:
        assert job.output_ids == alone[job.name].output_ids, job.name
        assert job.logit_hashes == alone[job.name].logit_hashes, job.name


def test_small_chunks_alone_change_no_bit(
    alone: dict[str, Job], prompts: Prompts, run: Run
) -> None:
    # Behind the prompt the steps are the same ones in both settings: one token each, and what the
    # pages hold. So all that was written for the prompt is compared, and all outputs of a few only.
    assert len({job.pages_hash for job in alone.values()}) == len(prompts)
    for name, ids in prompts.items():
        job = Job(name, ids, NUM_TOKENS if name in RUN_TO_THE_END else 3)
        run([job], chunk=16, max_running=1)
        assert job.pages_hash == alone[name].pages_hash, name
        assert job.output_ids == alone[name].output_ids[: job.num_wanted], name
        assert job.logit_hashes == alone[name].logit_hashes[: job.num_wanted], name


def test_a_seeded_draw_repeats_in_any_batch(prompts: Prompts, run: Run) -> None:
    sampling = SamplingParams(temperature=0.9, top_p=0.95, seed=1234)
    single = Job("single", prompts["prose"], 24, sampling=sampling)
    run([single], chunk=MAX_CHUNK, max_running=1)
    together = Job("together", prompts["prose"], 24, arrives_at=9, sampling=sampling)
    run([together, *_passers_by(prompts)[:4]], chunk=16, max_running=MAX_RUNNING)
    assert together.output_ids == single.output_ids


def _passers_by(prompts: Prompts) -> list[Job]:
    """Other people's requests: sampled, and cancelled while waiting, prefilling or decoding."""
    names = list(prompts)
    long_ids = prompts[names[-1]]
    jobs = [
        Job(
            f"passer-by {index}",
            long_ids[index * 7 :][: 20 + 30 * index],
            num_wanted=30,
            arrives_at=1 + 5 * index,
            cancelled_at=9 + 8 * index if index % 3 else None,
            sampling=SamplingParams(temperature=1.1, seed=index),
        )
        for index in range(7)
    ]
    # Cancelled in the middle of its prefill, whatever the chunk.
    jobs.append(Job("half read", long_ids[::-1], 4, arrives_at=1, cancelled_at=3))
    return jobs
