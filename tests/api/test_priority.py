"""`priority`: with --enable-priority the higher one comes first, without it nothing changes."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.kit import CHAT, COMPLETIONS, ApiBench, StartApi
from tests.api.native import GENERATE, generate

PATHS = (COMPLETIONS, CHAT, GENERATE)


async def ask(bench: ApiBench, path: str, text: str, **fields: Any) -> None:
    """One request for one token."""
    if path == GENERATE:
        answer = await generate(bench, text=text, sampling_params={"max_new_tokens": 1}, **fields)
    else:
        messages = {"messages": None} if path == CHAT else {}
        answer = await bench.post(path, prompt=text, max_tokens=1, **messages, **fields)
    assert answer.status == 200, answer.body


async def order_of(bench: ApiBench, path: str, *priorities: Any) -> list[int]:
    """Requests that come one after the other while one runs; in which order they are computed."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, bench, path, "first of all")
        await bench.device.wait_submitted()
        for number, priority in enumerate(priorities):
            fields = {} if priority is ... else {"priority": priority}
            nursery.start_soon(lambda n, f: ask(bench, path, f"{n} comes", **f), number, fields)
            await trio.testing.wait_all_tasks_blocked()
        bench.finish_all()
    rows = [row for plan in bench.runner.plans for row in plan.rows]
    prompts = list(dict.fromkeys(bytes(row.sequence.prompt_ids) for row in rows))
    return [int(prompt.split()[0]) for prompt in prompts[1:]]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("priorities", "order"),
    [
        ((0, 5, -1, 5.0, ...), [1, 3, 0, 4, 2]),
        ((-1e30, None, 1e30), [2, 1, 0]),
        ((1, 1, 1), [0, 1, 2]),
    ],
)
async def test_the_higher_priority_is_served_first_and_equal_ones_as_they_came(
    start: StartApi, path: str, priorities: tuple[Any, ...], order: list[int]
) -> None:
    bench = await start(enable_priority=True, is_automatic=False, depth=1, max_running_requests=1)
    assert await order_of(bench, path, *priorities) == order


@pytest.mark.parametrize("path", PATHS)
async def test_without_the_setting_it_has_no_effect(start: StartApi, path: str) -> None:
    bench = await start(is_automatic=False, depth=1, max_running_requests=1)
    assert await order_of(bench, path, 0, 5, -1, 7) == [0, 1, 2, 3]
