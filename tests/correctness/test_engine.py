"""The whole engine on the default model: each request gets the bits that it gets alone (promise 4).

It is asked for less than the runner in test_default_model.py, since what is its own here is who
shares a step with whom: real arrivals, real cancels, and one budget for chunks and tokens.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from tests.correctness.asking import start_server
from tests.correctness.conftest import MAX_RUNNING
from tests.correctness.plan_driver import GREEDY
from trioserve.core import SamplingParams, StopParams
from trioserve.engine.request import GenerateRequest, Generation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.correctness.hashing import HashingDecoder
    from tests.correctness.plan_driver import Job

# Not half a minute on two free cores; a busy machine takes several times as long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

STEP_TOKENS = 96
NUM_TOKENS = 24
NUM_PASSERS_BY = 8
REQUESTS_EACH = 4


def request(prompt: tuple[int, ...], sampling: SamplingParams) -> GenerateRequest:
    stop = StopParams(is_eos_ignored=True)
    return GenerateRequest(
        request_id="test",
        generations=(Generation(prompt, NUM_TOKENS, sampling, stop),),
        num_samples=1,
    )


async def test_a_busy_engine_gives_each_request_what_it_gets_alone(
    alone: dict[str, Job],
    decoder: HashingDecoder,
    model_directory: Path,
    prompts: dict[str, tuple[int, ...]],
    nursery: trio.Nursery,
) -> None:
    server = await start_server(decoder, model_directory, nursery, step_tokens=STEP_TOKENS)
    engine, runner = server.engine, server.runner
    outputs: dict[str, list[int]] = {}
    logit_hashes: dict[str, list[str]] = {}

    async def read(name: str) -> None:
        prompt = prompts[name]
        with engine.open_stream(request(prompt, GREEDY)) as stream:
            (choice,) = stream.choices
            while choice.finish is None or choice.has_news:
                await stream.receive()
            outputs[name] = choice.sequence.token_ids[len(prompt) :]
            logit_hashes[name] = runner.hashes[choice.sequence]

    async def come_and_go(seed: int) -> None:
        random = Random(seed)
        for _ in range(REQUESTS_EACH):
            prompt = prompts[random.choice(list(prompts))][: random.randint(1, 400)]
            sampling = SamplingParams(temperature=1.1, seed=seed)
            with engine.open_stream(request(prompt, sampling)) as stream:
                await stream.wait_started()
                for _ in range(random.randint(0, 6)):
                    await stream.receive()

    async def leave_half_read() -> None:
        long_prompt = prompts["two thousand tokens"][::-1]
        with engine.open_stream(request(long_prompt, GREEDY)) as stream:
            await stream.wait_started()
            assert stream.choices[0].sequence.num_output == 0

    async with trio.open_nursery() as clients:
        for seed in range(NUM_PASSERS_BY):
            clients.start_soon(come_and_go, seed)
        clients.start_soon(leave_half_read)
        for name in prompts:
            clients.start_soon(read, name)
    for name, job in alone.items():
        assert outputs[name] == job.output_ids[:NUM_TOKENS], name
        assert logit_hashes[name] == job.logit_hashes[:NUM_TOKENS], name
    assert runner.most_rows >= MAX_RUNNING / 2, "hardly anything was computed together"
    assert engine.batch.pool.statistics().leased == 0
