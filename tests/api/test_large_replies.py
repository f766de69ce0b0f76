"""Answers so large that writing them at once would hold up everybody else."""

from types import ModuleType
from typing import Any

import orjson
import pytest
import trio
import trio.testing

from tests.api.kit import CHAT, COMPLETIONS, JSON, StartApi, body_for
from tests.api.native import GENERATE
from trioserve.api import event_reply, native_reply
from trioserve.api.chat_shape import ChatShape
from trioserve.api.completion_shape import CompletionShape
from trioserve.api.native_reply import NativeFrame


@pytest.mark.parametrize(
    ("path", "module", "shape"),
    [
        (COMPLETIONS, event_reply, (CompletionShape, "finish")),
        (CHAT, event_reply, (ChatShape, "finish")),
        (GENERATE, native_reply, (NativeFrame, "payload")),
    ],
)
async def test_choices_that_all_end_at_once_are_written_with_pauses(
    start: StartApi,
    path: str,
    module: ModuleType,
    shape: tuple[type, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await start("ok", is_automatic=False)
    order: list[str] = []
    owner, name = shape
    make = getattr(owner, name)

    def record(*args: Any) -> Any:
        order.append("choice")
        return make(*args)

    async def tick() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            order.append("turn")

    own = {"text": "Once", "sampling_params": {"n": 4}} if path == GENERATE else body_for(path, n=4)
    data = orjson.dumps({**own, "stream": True})
    monkeypatch.setattr(module, "ITEMS_AT_ONCE", 1)
    monkeypatch.setattr(owner, name, record)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.ask("POST", path, data=data, headers=JSON))
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as ticking:
            ticking.start_soon(tick)
            await bench.ask("POST", "/abort_request", data=b'{"abort_all": true}', headers=JSON)
            while order.count("choice") < 4:
                await trio.lowlevel.checkpoint()
            while order[-1] == "turn":
                order.pop()
            ticking.cancel_scope.cancel()
    first = order.index("choice")
    turns = order[first:].count("turn")
    # Who is first within one turn is up to chance.
    assert turns >= 2, order
    bench.finish_all()


@pytest.mark.parametrize(
    ("path", "fields", "is_large"),
    [
        (CHAT, {}, False),
        (CHAT, {"logprobs": True}, False),
        (CHAT, {"logprobs": True, "top_logprobs": 20}, True),
        (COMPLETIONS, {"logprobs": 20}, True),
        (COMPLETIONS, {"logprobs": 0, "best_of": 2}, False),
    ],
)
async def test_every_logprob_counts_towards_the_size_of_an_answer(
    start: StartApi,
    path: str,
    fields: dict[str, Any],
    is_large: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await start("abc")
    in_threads = []
    run_sync = trio.to_thread.run_sync

    async def record(*args: Any, **kwargs: Any) -> Any:
        in_threads.append(args)
        return await run_sync(*args, **kwargs)

    monkeypatch.setattr(trio.to_thread, "run_sync", record)
    monkeypatch.setattr("trioserve.api.off_loop.LARGE_REPLY_ITEMS", 20)
    assert (await bench.post(path, **fields)).status == 200
    assert bool(in_threads) == is_large
