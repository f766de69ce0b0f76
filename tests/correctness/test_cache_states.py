"""Fifty prompts read the same, bit for bit, whatever state the caches are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve

from tests.correctness.asking import Answer, Server, start_server
from trioserve.core import ReadoutParams

if TYPE_CHECKING:
    from pathlib import Path

    from tests.correctness.hashing import HashingDecoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

NUM_PROMPTS = 50
NUM_TOKENS = 4
READ = ReadoutParams(num_top=3, has_hidden_state=True)
FEW_PAGES = 16
"""The longest of the prompts needs eight."""


@pytest.fixture(scope="module")
def fifty(prompts: dict[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The real prompts, and parts of a long text, some of which begin alike."""
    text = prompts["two thousand tokens"]
    chosen = [prompt for prompt in prompts.values() if len(prompt) < 128]
    while len(chosen) < NUM_PROMPTS:
        number = len(chosen)
        begin = 100 * (number // 3)
        chosen.append(text[begin : begin + 18 + 4 * (number % 12)])
    assert len(set(chosen)) == NUM_PROMPTS
    return chosen


@pytest.fixture
async def cold(
    decoder: HashingDecoder, model_directory: Path, fifty: list[tuple[int, ...]]
) -> list[Answer]:
    """What each prompt gets where nothing is shared."""
    async with trio.open_nursery() as nursery:
        server = await start_server(decoder, model_directory, nursery)
        answers = await ask_all(server, fifty, is_shared=False)
        nursery.cancel_scope.cancel()
    return answers


async def ask_all(
    server: Server, prompts: list[tuple[int, ...]], *, is_shared: bool = True
) -> list[Answer]:
    """All at once; the answers in the order of the prompts."""
    answers: dict[int, Answer] = {}

    async def ask(number: int) -> None:
        answers[number] = await server.ask(prompts[number], READ, NUM_TOKENS, is_shared=is_shared)

    async with trio.open_nursery() as nursery:
        for number in range(len(prompts)):
            nursery.start_soon(ask, number)
    return [answers[number] for number in range(len(prompts))]


async def preempt_again_and_again(server: Server) -> None:
    """Take the pages of the newest running sequence as if they were needed, while a step runs."""
    batch, last = server.engine.batch, 0
    while True:
        await trio.sleep(0.01)
        if batch.last_launched >= last + 4 and batch.scheduler.num_running > 1:
            last = batch.last_launched
            batch.scheduler._preempt(batch.scheduler._places.running[-1])


def without_hashes(answers: list[Answer]) -> list[Answer]:
    return [evolve(answer, logit_hashes=[]) for answer in answers]


def num_cached(answers: list[Answer]) -> int:
    return sum(answer.num_cached for answer in answers)


async def test_warm_evicted_preempted_and_restored_caches_change_no_bit(
    decoder: HashingDecoder,
    model_directory: Path,
    fifty: list[tuple[int, ...]],
    cold: list[Answer],
    tmp_path: Path,
) -> None:
    assert num_cached(cold) == 0
    async with trio.open_nursery() as nursery:
        storage = {"cache_storage": str(tmp_path)}
        server = await start_server(decoder, model_directory, nursery, **storage)
        tree = server.engine.batch.scheduler.tree
        assert await ask_all(server, fifty) == cold
        warm = await ask_all(server, fifty)
        assert warm == cold
        assert num_cached(warm) > sum(len(prompt) - 17 for prompt in fifty)
        # From here on nothing comes from the tiers: with the same keys they would help out.
        server.engine.batch.tiers = None
        server.engine.batch.scheduler.seek = lambda _sequence: None
        assert tree.flush() > 0
        assert await ask_all(server, fifty) == cold
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        server = await start_server(decoder, model_directory, nursery, num_pages=FEW_PAGES)
        nursery.start_soon(preempt_again_and_again, server)
        preempted = await ask_all(server, fifty)
        # A draw that was in flight is made twice, and both have a hash.
        assert without_hashes(preempted) == without_hashes(cold)
        scheduler = server.engine.batch.scheduler
        assert scheduler.num_preemptions > 5
        assert scheduler.tree.num_evicted > 0
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        server = await start_server(decoder, model_directory, nursery, **storage)
        restored = await ask_all(server, fifty)
        assert restored == cold
        assert num_cached(restored) >= num_cached(warm)
        tiers = server.engine.batch.tiers
        assert tiers is not None
        assert tiers.storage is not None
        assert tiers.storage.statistics().hits > NUM_PROMPTS
        nursery.cancel_scope.cancel()
