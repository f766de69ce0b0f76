"""A small, deterministic stand-in for the engine: jobs in, plans out, tokens collected.

It gives each step the decode rows of all running jobs and prefill chunks within a budget, admits
jobs when they arrive, ends them by length or by cancel, and hands the pages of ended jobs to later
ones, newest first, so that pages hold other sequences' leftovers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from attrs import define, field

from trioserve.core import (
    READ_NOTHING,
    PageId,
    ReadoutParams,
    SamplingParams,
    StepNumber,
    TokenLogprobs,
)
from trioserve.scheduler.plan import PlanRow, StepPlan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tests.correctness.hashing import HashingRunner
    from trioserve.device.base import RowReadout
    from trioserve.scheduler.sequence import Sequence

GREEDY = SamplingParams(temperature=0.0)


@define(eq=False)
class Job:
    """One sequence: what it asks for, and what it got. With `num_wanted` 0 its prompt is read."""

    name: str
    prompt_ids: tuple[int, ...]
    num_wanted: int
    arrives_at: int = 0
    cancelled_at: int | None = None
    sampling: SamplingParams = GREEDY
    readout: ReadoutParams = READ_NOTHING
    output_ids: list[int] = field(factory=list)
    logit_hashes: list[str] = field(factory=list)
    pages_hash: str = ""
    """Of all that was computed for its prompt; set at its end."""
    prompt_logprobs: list[TokenLogprobs] = field(factory=list)
    output_logprobs: list[TokenLogprobs] = field(factory=list)
    vectors: list[npt.NDArray[np.float32]] = field(factory=list)
    num_fed: int = 0
    page_ids: list[PageId] = field(factory=list)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return (*self.prompt_ids, *self.output_ids)

    @property
    def max_tokens(self) -> int:
        """As a sequence calls it."""
        return self.num_wanted

    def take(self, readout: RowReadout) -> None:
        """Keep what was read in one step."""
        self.prompt_logprobs += readout.prompt
        if readout.sampled is not None:
            self.output_logprobs.append(readout.sampled)
        if readout.vector is not None:
            self.vectors.append(readout.vector)


def run_jobs(runner: HashingRunner, jobs: list[Job], *, chunk: int, max_running: int) -> None:
    """Run all jobs to their end; `chunk` is the most prompt tokens of one step."""
    pages = runner.decoder.pages
    free = [PageId(i) for i in range(pages.num_pages)]
    waiting = sorted(jobs, key=lambda job: job.arrives_at)
    running: list[Job] = []
    number = 0
    while waiting or running:
        number += 1
        for job in [job for job in running if job.cancelled_at == number]:
            running.remove(job)
            free += job.page_ids
        waiting = [job for job in waiting if job.cancelled_at != number]
        while waiting and len(running) < max_running and waiting[0].arrives_at <= number:
            running.append(waiting.pop(0))
        rows, fed_jobs, budget = [], [], chunk
        for job in running:
            tokens = job.token_ids[job.num_fed :]
            if len(tokens) > 1 or not job.output_ids:
                tokens = tokens[:budget]
                budget -= len(tokens)
            if not tokens:
                continue
            end = job.num_fed + len(tokens)
            while len(job.page_ids) * pages.page_size < end:
                job.page_ids.append(free.pop())
            is_sampled = end == len(job.token_ids) and job.num_wanted > 0
            rows.append(_row(job, tokens, is_sampled=is_sampled))
            fed_jobs.append(job)
        if not rows:
            continue
        step = runner.stage(StepPlan(StepNumber(number), tuple(rows)))
        step.launch()
        result = step.result()
        assert not result.failures
        for index, (job, row) in enumerate(zip(fed_jobs, rows, strict=True)):
            job.num_fed += row.num_tokens
            token_id = result.token_ids[index]
            if token_id is not None:
                job.output_ids.append(token_id)
            if index in result.readouts:
                job.take(result.readouts[index])
            is_read = job.num_fed >= len(job.prompt_ids)
            if is_read and len(job.output_ids) == job.num_wanted:
                job.logit_hashes = runner.hashes[job]
                job.pages_hash = runner.decoder.hash_of_pages(job.page_ids, len(job.prompt_ids))
                running.remove(job)
                free += job.page_ids
    assert len(free) == len(set(free)) == pages.num_pages


def _row(job: Job, tokens: tuple[int, ...], *, is_sampled: bool) -> PlanRow:
    start, end = job.num_fed, job.num_fed + len(tokens)
    targets = range(0)
    if job.readout.prompt_from is not None:
        last = min(end, len(job.prompt_ids) - 1)
        targets = range(max(job.readout.prompt_from, start + 1), last + 1)
    return PlanRow(
        sequence=cast("Sequence", job),
        epoch=0,
        start=start,
        token_ids=tokens,
        is_carried=False,
        page_ids=tuple(job.page_ids),
        is_sampled=is_sampled,
        sampling=job.sampling,
        sample_index=0,
        num_prompt=len(job.prompt_ids),
        history=job.token_ids if is_sampled and job.sampling.has_penalties else (),
        readout=job.readout,
        target_start=targets.start,
        target_ids=job.prompt_ids[targets.start : targets.stop],
    )
