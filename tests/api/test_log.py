"""One line for each request, and nothing in it that is the client's own business."""

import logging
from typing import Any

import pytest
import trio
import trio.testing

from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, PROMPT, RENDERED, StartApi

SECRET = "my diary"


def read(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of each line so far."""
    lines = [record.msg for record in caplog.records]
    assert all(isinstance(line, dict) for line in lines), lines
    caplog.clear()
    return lines


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_one_line_with_id_counts_and_how_it_finished(
    start: StartApi, caplog: pytest.LogCaptureFixture, path: str, stream: bool
) -> None:
    caplog.set_level(logging.INFO, "trioserve")
    bench = await start("abc", "abcdefgh")
    caplog.clear()
    answer = await bench.post(path, stream=stream, n=2, max_tokens=5)
    (line,) = read(caplog)
    (request_id,) = {reply["id"] for reply in (answer.events() if stream else [answer.json()])}
    assert {key: line[key] for key in line if key not in ("timestamp", "level")} == {
        "event": "request",
        "id": request_id,
        "endpoint": path,
        "outcome": "ok",
        "prompt_tokens": len(PROMPT if path == COMPLETIONS else RENDERED),
        "completion_tokens": 4 + 5,
        "finish": "length:1,stop:1",
        "duration_s": line["duration_s"],
    }


async def test_a_client_that_leaves_is_one_line(
    start: StartApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trioserve")
    bench = await start("abc" * 9, is_automatic=False)
    caplog.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.wire_request, CHAT)
        for _ in range(2):
            await bench.finish_step()
        nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    (line,) = read(caplog)
    assert (line["outcome"], line["finish"], line["completion_tokens"]) == ("cancelled", "abort", 2)


async def test_a_refusal_is_one_line_and_looking_is_none(
    start: StartApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trioserve")
    bench = await start("abc")
    caplog.clear()
    for path in ("/health", "/metrics", "/v1/models", "/v1/loads", "/get_model_info"):
        await bench.get(path)
    assert read(caplog) == []
    answer = await bench.post(CHAT, temperature=-1)
    (line,) = read(caplog)
    assert line["event"] == "request refused"
    assert line["id"] == answer.headers["x-request-id"]
    assert (line["endpoint"], line["status"]) == (CHAT, "400")
    assert line["error"] == "Invalid request: temperature must be non-negative"


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_no_line_holds_text_of_a_request_or_an_answer(
    start: StartApi, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.DEBUG, "trioserve")
    bench = await start(SECRET)
    messages = [{"role": "user", "content": SECRET}]
    fields = {"prompt": SECRET} if path == COMPLETIONS else {"messages": messages}
    assert (await bench.post(path, **fields, user=SECRET, odd=SECRET)).texts() == [SECRET]
    await bench.post(path, **fields, stop=[SECRET], stream=True)
    await bench.post(path, **fields, temperature=SECRET)
    await bench.post(path, **{**fields, "prompt": SECRET * 1000, "messages": None})
    lines = read(caplog)
    assert len(lines) >= 4
    assert SECRET not in str(lines)
