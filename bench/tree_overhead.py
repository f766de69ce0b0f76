"""What the prefix tree costs where it finds nothing: the scheduler's own time a step.

The same sequences with prompts that share nothing are played through the real scheduler twice, with
the tree and without, round after round; no model runs. Processor time, so that a busy machine
matters little, and the least of all rounds. One JSON line; `extra_us` is to be set against the time
of a whole step, which `bench/online.py` shows as the gap between two tokens.
"""

import json
import time
from collections.abc import Iterator
from itertools import count

import click
from attrs import frozen

from bench import summary
from trioserve.core import SHARED, CacheNamespace, SamplingParams, SequenceId, StepNumber
from trioserve.kv.pool import PagePool
from trioserve.scheduler.scheduler import Scheduler, SchedulerLimits
from trioserve.scheduler.sequence import Sequence

PAGE_SIZE = 16
STEP_TOKENS = 64


@frozen
class Work:
    """What is played."""

    clients: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    pool_tokens: int


def sequences(work: Work, namespace: CacheNamespace | None) -> Iterator[Sequence]:
    """Sequences that begin like no other."""
    tokens = count()
    for number in range(work.requests):
        yield Sequence(
            id=SequenceId(number + 1),
            prompt_ids=tuple(next(tokens) for _ in range(work.prompt_tokens)),
            max_tokens=work.output_tokens,
            sampling=SamplingParams(),
            sample_index=0,
            credit=lambda: 1 << 20,
            namespace=namespace,
        )


def play(work: Work, namespace: CacheNamespace | None) -> tuple[float, int]:
    """All of them, `clients` at a time: processor seconds in the scheduler, and steps."""
    pool = PagePool(work.pool_tokens // PAGE_SIZE)
    scheduler = Scheduler(pool, SchedulerLimits(PAGE_SIZE, work.clients, STEP_TOKENS))
    coming = sequences(work, namespace)
    for _ in range(work.clients):
        scheduler.add(next(coming))
    spent_s, num_steps = 0.0, 0
    while True:
        began = time.process_time()
        plan = scheduler.plan(StepNumber(num_steps + 1))
        if plan is None:
            return spent_s, num_steps
        num_steps += 1
        for row in plan.rows:
            scheduler.publish(row)
            if row.is_sampled:
                row.sequence.append(7)
                if row.sequence.num_output == work.output_tokens:
                    scheduler.end(row.sequence)
        pool.retire(plan.number)
        spent_s += time.process_time() - began
        for _ in range(work.clients - scheduler.num_running - scheduler.num_waiting):
            if (sequence := next(coming, None)) is not None:
                scheduler.add(sequence)


@click.command(help="The scheduler's time a step, with and without the prefix tree.")
@click.option("--clients", default=16, show_default=True, type=click.IntRange(1))
@click.option("--requests", default=256, show_default=True, type=click.IntRange(1))
@click.option("--prompt-tokens", default=100, show_default=True, type=click.IntRange(1))
@click.option("--output-tokens", default=64, show_default=True, type=click.IntRange(1))
@click.option("--pool-tokens", default=16_384, show_default=True, type=click.IntRange(1024))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
def main(rounds: int, **options: int) -> None:
    """The command."""
    work = Work(**options)
    best_us: dict[str, float] = {}
    num_steps = 0
    for _ in range(rounds):
        for name, namespace in (("without", None), ("with", SHARED)):
            spent_s, num_steps = play(work, namespace)
            spent_us = spent_s / num_steps * 1e6
            best_us[name] = min(spent_us, best_us.get(name, spent_us))
    line = {
        "bench": "tree_overhead",
        "commit": summary.commit(),
        "device": summary.device(),
        "shape": options,
        "steps": num_steps,
        "without_us": round(best_us["without"], 1),
        "with_us": round(best_us["with"], 1),
        "extra_us": round(best_us["with"] - best_us["without"], 1),
    }
    click.echo(json.dumps(line))


if __name__ == "__main__":
    main()
