"""What structured output costs, worked out against a server whose delays are known."""

import itertools
import json
from typing import Any

import pytest
from attrs import evolve
from trio.testing import MockClock

from bench import structured
from bench.load import Endpoint, Shape

OPTIONS = structured.Options(
    url="http://127.0.0.1:30000",
    api_key=None,
    clients=2,
    requests=4,
    rounds=2,
    compilations=0,
    prompt_tokens=40,
    output_tokens=5,
    seed=1,
    label="a test",
)


async def test_both_kinds_are_measured_in_turn(server: Any, autojump_clock: MockClock) -> None:
    line: dict[str, Any] = await structured.measure(OPTIONS)
    # 0.5 s to the first token and four gaps of 0.1 s, two clients at once.
    assert line["free_tok_s"] == line["constrained_tok_s"] == pytest.approx(10 / 0.9, abs=0.01)
    assert line["constrained_ratio"] == 1.0
    assert [each["gap_ms"]["p50"] for each in line["calm"]] == [100.0, 100.0]
    assert all(each["health_ms"]["count"] > 10 for each in line["compiling"])
    assert line["gap_ratio"] == {"p50": 1.0, "p90": 1.0, "p99": 1.0}
    # Four of each kind in three rounds, and four for each of the four watched loads.
    assert len(server.prompts) == 2 + 3 * 8 + 4 * 4


def test_gaps_are_compared_within_each_pair() -> None:
    def loads(*gaps_ms: float | None) -> list[dict[str, Any]]:
        return [{"gap_ms": {"p50": gap}} for gap in gaps_ms]

    # The machine was half as fast in the second round, and a third one went wrong.
    assert structured._ratio("p50", loads(110, 220, 900), loads(100, 200, 100)) == 1.1
    assert structured._ratio("p50", loads(110), loads(None)) is None


async def test_a_schema_that_is_answered_is_no_measure(
    server: Any, autojump_clock: MockClock
) -> None:
    """This server ignores schemas."""
    with pytest.RaisesGroup(structured.WireError):
        await structured.measure(evolve(OPTIONS, compilations=1, rounds=1))


def test_a_constrained_body_has_the_schema_and_a_free_one_has_not() -> None:
    shape = Shape("m", Endpoint.COMPLETIONS, 5)
    more = {"json_schema": structured.SCHEMA}
    assert "json_schema" not in json.loads(shape.body("x"))
    assert json.loads(evolve(shape, more=more).body("x"))["json_schema"] == structured.SCHEMA


def test_each_pathological_schema_is_another_one() -> None:
    sources = {structured.pathological(number) for number in itertools.islice(itertools.count(), 4)}
    assert len(sources) == 4
    assert all(len(source) < 256 * 1024 for source in sources)
