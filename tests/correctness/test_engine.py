"""The whole engine on the default model: what requests get is what each gets alone (promise 4)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from tests.correctness.conftest import MAX_CHUNK, MAX_LEN, MAX_RUNNING, NUM_TOKENS
from trioserve.config import ServerConfig
from trioserve.core import ModelInfo, SamplingParams, StopParams
from trioserve.device.cpu import CpuDevice
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.served import ServedModel
from trioserve.runner.runner import ModelRunner
from trioserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.correctness.plan_driver import HashingDecoder, Job

pytestmark = pytest.mark.slow

NUM_CANCELLED = 40


def greedy(prompt: tuple[int, ...]) -> GenerateRequest:
    return GenerateRequest(
        request_id="test",
        generations=(
            Generation(
                prompt,
                NUM_TOKENS,
                SamplingParams(temperature=0.0),
                StopParams(is_eos_ignored=True),
            ),
        ),
        num_samples=1,
    )


@pytest.mark.parametrize("chunk", [16, MAX_CHUNK])
async def test_a_busy_engine_gives_each_request_what_it_gets_alone(
    chunk: int,
    alone: dict[str, Job],
    decoder: HashingDecoder,
    model_directory: Path,
    prompts: dict[str, tuple[int, ...]],
    nursery: trio.Nursery,
) -> None:
    inner = decoder.decoder
    served = ServedModel(
        info=ModelInfo("model", "llama", ("LlamaForCausalLM",), "float16", 49_152, MAX_LEN),
        runner=ModelRunner(
            inner, max_tokens=chunk + MAX_RUNNING, max_sequences=MAX_RUNNING, max_len=MAX_LEN
        ),
        tokenizer=Tokenizer.from_directory(model_directory),
        num_pages=inner.pages.num_pages,
        page_size=inner.pages.page_size,
        max_step_tokens=chunk,
    )
    engine = Engine(
        ServerConfig(max_running_requests=MAX_RUNNING),
        lambda _config: served,
        CpuDevice(),
        check_after_steps=True,
    )
    await nursery.start(engine.run)
    await engine.ready.wait()
    outputs: dict[str, list[int]] = {}

    async def read(name: str, prompt: tuple[int, ...]) -> None:
        with engine.open_stream(greedy(prompt)) as stream:
            (choice,) = stream.choices
            while choice.finish is None or choice.has_news:
                await stream.receive()
            outputs[name] = choice.sequence.token_ids[len(prompt) :]

    async def come_and_go(random: Random) -> None:
        for _ in range(NUM_CANCELLED // 8):
            prompt = prompts[random.choice(list(prompts))][: random.randint(1, 400)]
            with engine.open_stream(greedy(prompt)) as stream:
                await stream.wait_started()
                for _ in range(random.randint(0, 6)):
                    await stream.receive()

    async with trio.open_nursery() as clients:
        for seed in range(8):
            clients.start_soon(come_and_go, Random(seed))
        for name, prompt in prompts.items():
            clients.start_soon(read, name, prompt)
    assert {name: job.output_ids for name, job in alone.items()} == outputs
    assert engine.batch.pool.statistics().leased == 0
