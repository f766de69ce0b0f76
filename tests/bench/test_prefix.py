"""The prefix benchmark asks what it says it asks, and its figures are those of the server."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from click.testing import CliRunner
from trio.testing import MockClock

from bench import prefix
from bench.plot import Panel, svg
from bench.prefix_scenarios import COLD_REQUESTS, SCENARIOS, Plan
from bench.wire import Target

PLAN = Plan(
    prefix_tokens=100,
    suffix_tokens=5,
    output_tokens=4,
    prefixes=2,
    rounds=3,
    turns=4,
    branches=6,
    seed=1,
)
NUM_COUNTED = 4
"""Requests that learn how the server counts."""


async def measured(scenario: str, plan: Plan = PLAN) -> dict[str, Any]:
    options = prefix.Options(
        url=None,
        api_key=None,
        model="fake",
        sizes=(),
        scenarios=(scenario,),
        output=None,
        label="here",
        server_flags=(),
    )
    target = Target.parse("http://127.0.0.1:30000")
    (line,) = [line async for line in prefix.measure(target, options, plan, 512)]
    return line


async def test_shared_prefixes_are_asked_in_turn_with_new_suffixes(
    server: Any, autojump_clock: MockClock
) -> None:
    server.page_words = 10
    line = await measured("shared")
    cold, *rounds = _split(server.prompts[NUM_COUNTED:], [COLD_REQUESTS, 2, 2, 2, 2])
    starts = [[tuple(prompt.split()[:100]) for prompt in prompts] for prompts in rounds]
    assert starts[0] == starts[1] == starts[2] == starts[3]
    assert len({*starts[0], *(tuple(prompt.split()[:100]) for prompt in cold)}) == 5
    every = [prompt for prompts in (cold, *rounds) for prompt in prompts]
    assert len(set(every)) == len(every)
    assert {len(prompt.split()) for prompt in every} == {105}
    # 100 of 105 words are cached, and the rest takes its share of the time.
    assert line["requests"] == 6
    assert line["hit_rate"] == round(100 / 105, 4)
    assert line["cold_ttft_ms"]["p50"] == pytest.approx(500)
    assert line["ttft_ratio"] == pytest.approx(5 / 105, abs=1e-4)
    assert line["tok_s"] == pytest.approx(4 / (0.5 * 5 / 105 + 0.3), rel=1e-3)
    assert (line["pool_tokens"], line["label"], line["failed"]) == (512, "here", 0)


async def test_each_turn_of_a_chat_resends_its_history(
    server: Any, autojump_clock: MockClock
) -> None:
    server.page_words = 1
    line = await measured("chat")
    turns = server.prompts[NUM_COUNTED : NUM_COUNTED + 8]
    for before, after in zip(turns, turns[2:], strict=False):
        # The reply is four words, and goes back as it came.
        assert after.startswith(f"{before}  w w w w ")
    assert len({tuple(prompt.split()[:9]) for prompt in turns}) == 2
    assert line["requests"] == 6
    lengths = [len(prompt.split()) for prompt in turns]
    # What the server keeps is the prompts, less the last word.
    cached = sum(length - 1 for length in lengths[:6])
    assert line["hit_rate"] == round(cached / sum(length + 7 for length in lengths[2:]), 4)
    # Cold: as long as the last turn, with another beginning.
    cold = server.prompts[NUM_COUNTED + 8 :]
    assert [len(prompt.split()) for prompt in cold] == lengths[-2:]
    assert line["cold_ttft_ms"]["p50"] == pytest.approx(500)
    assert line["warm_ttft_ms"]["p50"] < 300


async def test_branches_come_at_once_and_every_other_one_is_left(
    server: Any, autojump_clock: MockClock
) -> None:
    server.page_words = 10
    line = await measured("fanout")
    assert server.max_running == PLAN.branches == line["requests"]
    assert line["left"] == 3
    assert len(server.free_s) == 3
    # Those that are left tell no usage; the others had all of the prefix from the cache.
    assert line["hit_rate"] == round(100 / 105, 4)
    assert line["tok_s"] == pytest.approx(3 * 4 / (0.5 * 5 / 105 + 0.3), rel=1e-3)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_server_that_tells_nothing_of_its_cache_has_no_hit_rate(
    scenario: str, server: Any, autojump_clock: MockClock
) -> None:
    line = await measured(scenario)
    assert line["hit_rate"] is None
    assert line["ttft_ratio"] == pytest.approx(1.0)


async def test_refusals_are_counted_and_shown(server: Any, autojump_clock: MockClock) -> None:
    server.max_slots = 2
    line = await measured("fanout")
    assert line["failed"] == 4
    assert line["errors"] == ['503: {"error":{"code":"overloaded"}}']


async def test_the_same_seed_asks_the_same(server: Any, autojump_clock: MockClock) -> None:
    await measured("shared")
    first = server.prompts.copy()
    server.prompts.clear()
    await measured("shared")
    assert server.prompts == first
    server.prompts.clear()
    await measured("shared", attrs.evolve(PLAN, seed=2))
    assert not set(server.prompts) & set(first)


def test_lines_of_each_size_are_drawn() -> None:
    figures = {"hit_rate": 0.5, "ttft_ratio": 0.25, "tok_s": 30.0}
    lines = [
        {"scenario": name, "pool_tokens": size, **figures, "hit_rate": rate}
        for name, size, rate in [("shared", 512, 0.1), ("shared", 8192, None), ("chat", 512, 0.2)]
    ]
    picture = prefix.draw([*lines, {"scenario": "chat", "pool_tokens": None, **figures}])
    root = ET.fromstring(picture)
    circles = [node for node in root.iter() if node.tag.endswith("circle")]
    assert len(circles) == 2 + 3 + 3
    words = {node.text for node in root.iter() if node.tag.endswith("text")}
    assert {"shared", "chat", "512", "8192", "hit rate", "tok/s"} <= words


def test_points_stand_where_their_values_are() -> None:
    panel = Panel("a & b", {"one": [(100.0, 4.0), (1.0, 0.0), (10.0, 2.0)]})
    root = ET.fromstring(svg("title", "x", [panel]))
    places = [
        (float(node.attrib["cx"]), float(node.attrib["cy"]))
        for node in root.iter()
        if node.tag.endswith("circle")
    ]
    (left, bottom), (middle, half), (right, top) = places
    assert middle - left == right - middle == 150
    assert bottom - half == half - top == 100


def test_an_empty_picture_is_still_one() -> None:
    assert ET.fromstring(prefix.draw([])).tag.endswith("svg")


def test_a_server_that_cannot_be_reached_is_one_line_and_code_1(tmp_path: Path) -> None:
    output = tmp_path / "lines.jsonl"
    done = CliRunner().invoke(prefix.main, ["--url", "http://127.0.0.1:1", "--output", str(output)])
    assert done.exit_code == 1
    assert "cannot connect" in done.output
    assert not output.exists()


async def test_lines_go_to_the_file_one_by_one(
    server: Any, autojump_clock: MockClock, tmp_path: Path
) -> None:
    output = tmp_path / "lines.jsonl"
    output.write_bytes(b'{"scenario":"older"}\n')
    options = prefix.Options(
        url="http://127.0.0.1:30000",
        api_key=None,
        model=None,
        sizes=(512,),
        scenarios=("shared", "fanout"),
        output=output,
        label=None,
        server_flags=(),
    )
    assert await prefix.run(options, PLAN)
    lines = [orjson.loads(line) for line in output.read_bytes().splitlines()]
    assert [line["scenario"] for line in lines] == ["older", "shared", "fanout"]
    assert [line["pool_tokens"] for line in lines[1:]] == [None, None]


def _split(prompts: list[str], sizes: list[int]) -> list[list[str]]:
    """Cut into parts of these sizes, which is all there is."""
    assert len(prompts) == sum(sizes)
    remaining = iter(prompts)
    return [[next(remaining) for _ in range(size)] for size in sizes]
