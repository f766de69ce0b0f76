"""The overload benchmark times refusals, and nothing else."""

from typing import Any

import pytest
from trio.testing import MockClock

from bench import overload

DEFAULTS = overload.Options(
    url="http://127.0.0.1:30000",
    api_key=None,
    model="fake",
    clients=3,
    requests=20,
    prompt_tokens=20,
    interval=0.02,
    settle=1.0,
    seed=3,
    label=None,
)


async def test_refusals_of_a_full_server_are_timed(server: Any, autojump_clock: MockClock) -> None:
    server.max_slots, server.refusal_s = 3, 0.004
    line = await overload.measure(DEFAULTS)
    assert line["refused"] == 20
    assert line["other"] == {}
    assert line["refusal_ms"]["p50"] == pytest.approx(4.0)
    assert server.max_running == 3


async def test_an_answer_is_not_timed_as_a_refusal(server: Any, autojump_clock: MockClock) -> None:
    server.max_slots, server.refusal_s = 4, 0.004
    line = await overload.measure(DEFAULTS)
    assert line["refused"] == 0
    assert line["other"] == {"200": 20}
    assert line["refusal_ms"]["p50"] is None
