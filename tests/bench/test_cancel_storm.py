"""The storm's figures are those of the server's counters, less what was there before."""

from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from bench import cancel_storm

DEFAULTS = cancel_storm.Options(
    url="http://127.0.0.1:30000",
    api_key=None,
    model="fake",
    endpoint="completions",
    clients=4,
    requests=60,
    prompt_tokens=20,
    output_tokens=6,
    streamed_fraction=0.5,
    max_delay=None,
    probes=4,
    settle=5.0,
    seed=3,
    label=None,
    device="a test",
)


async def measure(**changes: Any) -> dict[str, Any]:
    return await cancel_storm.measure(attrs.evolve(DEFAULTS, **changes))


async def test_counters_from_before_are_taken_off(server: Any, autojump_clock: MockClock) -> None:
    line = await measure(probes=0)
    num = len(server.free_s)
    assert line["left"] == line["aborted"] == num > 50
    assert line["cancel_to_free_ms"] == {
        "count": num,
        "mean": 5.0,
        "p50_at_most": 10.0,
        "p99_at_most": 10.0,
        "max_at_most": 10.0,
    }
    assert line["cancel_to_free_steps"]["mean"] == 1.0
    assert line["wasted_tokens_per_cancel"] == pytest.approx((num // 2) / num, abs=1e-3)
    assert line["steps"] == num


async def test_clients_leave_within_the_time_that_a_request_takes(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure()
    assert line["shape"]["max_delay_s"] == pytest.approx(0.5 + 5 * 0.1)
    assert line["failed"] == 0


async def test_census_is_whole_when_every_page_came_back(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure()
    assert line["is_census_whole"]
    assert line["pages_after"] == line["pages_before"]


async def test_one_lost_page_breaks_the_census(server: Any, autojump_clock: MockClock) -> None:
    server.num_leaked_pages = 1
    line = await measure()
    assert not line["is_census_whole"]


async def test_request_that_never_ends_breaks_the_census(
    server: Any, autojump_clock: MockClock
) -> None:
    server.num_running = 1
    line = await measure(settle=0.5, probes=0)
    assert not line["is_census_whole"]


async def test_unstreamed_requests_are_left_too(server: Any, autojump_clock: MockClock) -> None:
    line = await measure(streamed_fraction=0.0, probes=0)
    assert line["left"] == len(server.free_s) > 50


async def test_pages_that_come_back_late_are_seen_from_outside(
    server: Any, autojump_clock: MockClock
) -> None:
    server.held_s = 0.05
    line = await measure(requests=1)
    assert line["close_to_free_ms"]["count"] == 4
    assert line["close_to_free_ms"]["p99"] == pytest.approx(50.0, abs=1.5)  # read every 1 ms
