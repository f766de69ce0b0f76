"""The whole engine on the default model: a warm cache changes no bit of what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.correctness.asking import Server, start_server
from trioserve.core import ReadoutParams

if TYPE_CHECKING:
    from pathlib import Path

    import trio

    from tests.correctness.hashing import HashingDecoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = 16
LENGTHS = (15, 16, 17, 33)
ECHO = ReadoutParams(num_top=5, prompt_from=0, has_hidden_state=True)
SOME_OF_IT = ReadoutParams(num_top=5, prompt_from=20, token_ids=(7,), has_hidden_state=True)
OUTPUT = ReadoutParams(num_top=5, has_hidden_state=True)


@pytest.fixture
async def server(decoder: HashingDecoder, model_directory: Path, nursery: trio.Nursery) -> Server:
    return await start_server(decoder, model_directory, nursery)


@pytest.mark.case(101)
@pytest.mark.parametrize("order", [LENGTHS, LENGTHS[::-1]], ids=["shortest_first", "longest_first"])
async def test_prompts_of_about_a_page_read_the_same_cold_and_warm(
    order: tuple[int, ...], server: Server, prompts: dict[str, tuple[int, ...]]
) -> None:
    text = prompts["two thousand tokens"]
    for length in order:
        prompt = text[:length]
        for readout in (ECHO, OUTPUT, SOME_OF_IT):
            if (readout.prompt_from or 0) >= length:
                continue
            cold = await server.ask(prompt, readout, 2, is_shared=False)
            assert cold.num_cached == 0
            assert len(cold.output_ids) == len(cold.logit_hashes) == 2
            num_read = 0 if readout.prompt_from is None else length - max(1, readout.prompt_from)
            assert len(cold.prompt_logprobs) == num_read
            for _ in range(2):
                warm = await server.ask(prompt, readout, 2, is_shared=True)
                assert warm == cold, (length, readout)
            first = length if readout.prompt_from is None else readout.prompt_from
            assert warm.num_cached == max(0, first - 1) // PAGE * PAGE


async def test_a_next_turn_reads_the_same_from_the_pages_of_the_answer_before(
    server: Server, prompts: dict[str, tuple[int, ...]]
) -> None:
    text = prompts["two thousand tokens"]
    first = await server.ask(text[:40], OUTPUT, 20, is_shared=True)
    prompt = (*text[:40], *first.output_ids, *text[100:107])
    cold = await server.ask(prompt, OUTPUT, 4, is_shared=False)
    warm = await server.ask(prompt, OUTPUT, 4, is_shared=True)
    # Computed one by one as it was generated, and here in chunks.
    assert warm.num_cached == (40 + 20 - 1) // PAGE * PAGE
    assert warm == cold
