"""A small, deterministic stand-in for the engine: jobs in, plans out, tokens collected.

It gives each step the decode rows of all running jobs and prefill chunks within a budget, admits
jobs when they arrive, ends them by length or by cancel, and hands the pages of ended jobs to later
ones, newest first, so that pages hold other sequences' leftovers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

from attrs import define, field, frozen

from trioserve.core import PageId, SamplingParams, StepNumber
from trioserve.scheduler.plan import PlanRow, StepPlan

if TYPE_CHECKING:
    from torch import Tensor

    from trioserve.model.decoder import Decoder, DecoderInput
    from trioserve.runner.runner import ModelRunner
    from trioserve.scheduler.sequence import Sequence

GREEDY = SamplingParams(temperature=0.0)


@define(eq=False)
class Job:
    """One sequence: what it asks for, and what it got."""

    name: str
    prompt_ids: tuple[int, ...]
    num_wanted: int
    arrives_at: int = 0
    cancelled_at: int | None = None
    sampling: SamplingParams = GREEDY
    output_ids: list[int] = field(factory=list)
    logit_hashes: list[str] = field(factory=list)
    num_fed: int = 0
    page_ids: list[PageId] = field(factory=list)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return (*self.prompt_ids, *self.output_ids)


@frozen(eq=False)
class HashingDecoder:
    """A decoder that keeps a hash of every row of logits it gave in the last step."""

    decoder: Decoder
    hashes: list[str] = field(factory=list)

    @property
    def pages(self) -> object:
        return self.decoder.pages

    def forward(self, batch: DecoderInput) -> Tensor:
        logits = self.decoder.forward(batch)
        self.hashes[:] = [hashlib.blake2b(row.numpy().tobytes()).hexdigest() for row in logits]
        return logits


def run_jobs(
    runner: ModelRunner,
    decoder: HashingDecoder,
    jobs: list[Job],
    *,
    chunk: int,
    max_running: int,
) -> None:
    """Run all jobs to their end; `chunk` is the most prompt tokens of one step."""
    page_size = decoder.decoder.pages.page_size
    free = [PageId(i) for i in range(decoder.decoder.pages.num_pages)]
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
            while len(job.page_ids) * page_size < end:
                job.page_ids.append(free.pop())
            rows.append(_row(job, tokens, is_sampled=end == len(job.token_ids)))
            fed_jobs.append(job)
        if not rows:
            continue
        step = runner.stage(StepPlan(StepNumber(number), tuple(rows)))
        step.launch()
        result = step.result()
        assert not result.failures
        hashes = iter(decoder.hashes)
        for job, row, token_id in zip(fed_jobs, rows, result.token_ids, strict=True):
            job.num_fed += row.num_tokens
            if token_id is not None:
                job.output_ids.append(token_id)
                job.logit_hashes.append(next(hashes))
            if len(job.output_ids) == job.num_wanted:
                running.remove(job)
                free += job.page_ids
    assert len(free) == len(set(free)) == decoder.decoder.pages.num_pages


def _row(job: Job, tokens: tuple[int, ...], *, is_sampled: bool) -> PlanRow:
    return PlanRow(
        sequence=cast("Sequence", job),
        epoch=0,
        start=job.num_fed,
        token_ids=tokens,
        is_carried=False,
        page_ids=tuple(job.page_ids),
        is_sampled=is_sampled,
        sampling=job.sampling,
        sample_index=0,
    )
