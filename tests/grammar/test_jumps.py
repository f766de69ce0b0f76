"""Tokens that a grammar leaves no choice about take no step, and nothing else changes."""

import json
from typing import Any

import pytest

from tests.api.kit import ENDPOINTS, StartApi
from tests.grammar.kit import DOCUMENT, one
from trioserve.engine.choice import Choice


async def test_jumps_change_steps_and_nothing_else(
    start: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forced tokens are counted and streamed like any others; the output is what it was."""
    bench = await start()
    fields: dict[str, Any] = {"json_schema": DOCUMENT, "seed": 7, "temperature": 1.5}
    jumped = [await bench.post(path, max_tokens=80, **fields) for path in ENDPOINTS]
    streamed = [await bench.post(path, max_tokens=80, stream=True, **fields) for path in ENDPOINTS]
    num_jumped = len(bench.runner.plans)
    monkeypatch.setattr(Choice, "forced", ())
    stepped = [await bench.post(path, max_tokens=80, **fields) for path in ENDPOINTS]
    num_stepped = len(bench.runner.plans) - num_jumped
    for jump, stream, step in zip(jumped, streamed, stepped, strict=True):
        assert jump.joined() == stream.joined() == step.joined()
        assert jump.json()["usage"] == step.json()["usage"]
        text = jump.texts()[0]
        json.loads(text)
        assert jump.json()["usage"]["completion_tokens"] == len(text)
    # Half of the steps were those of the streams.
    assert num_jumped / 2 < 0.6 * num_stepped


async def test_a_jump_ends_at_the_limit_and_at_a_stop(start: StartApi) -> None:
    bench = await start()
    schema = {"const": "a long text of which there is only one"}
    for limit in (1, 3, 10):
        choice = await one(bench, json_schema=schema, max_tokens=limit)
        assert choice.text == '"a long text of which there is only one"'[:limit]
        assert choice.finish == ("length", None)
    choice = await one(bench, json_schema=schema, stop="text")
    assert choice.text == '"a long '
    assert choice.finish == ("stop", "text")


async def test_a_jump_is_no_longer_than_its_reader_has_room(start: StartApi) -> None:
    """A stream may be 64 tokens ahead of its reader, jumps included."""
    bench = await start()
    text = "x" * 200
    most = 0

    async def watch() -> None:
        nonlocal most
        original = Choice.take

        def take(self: Choice) -> Any:
            nonlocal most
            most = max(most, self.num_untaken)
            return original(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Choice, "take", take)
            choice = await one(bench, json_schema={"const": text}, max_tokens=210)
            assert choice.text == f'"{text}"'

    await watch()
    assert 32 <= most <= 64
