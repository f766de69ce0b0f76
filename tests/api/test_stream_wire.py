"""Streams as they travel: headers, when they go out, and how events share a write."""

import orjson
import pytest
import trio
import trio.testing

from tests.api.answers import text_of
from tests.api.kit import ENDPOINTS, StartApi, body_for


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_stream_has_these_headers_on_the_wire(start: StartApi, path: str) -> None:
    bench = await start("abc")
    client = bench.wire.connect()
    await client.send("POST", path, body=orjson.dumps(body_for(path, stream=True)))
    head = await client.read_head()
    assert head.status == 200
    assert head.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert head.headers["cache-control"] == "no-cache"
    assert head.headers["x-accel-buffering"] == "no"
    assert head.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in head.headers
    assert head.headers["x-request-id"]
    events = [event async for event in client.read_events()]
    assert events[-1] == "[DONE]"
    client.close()


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_done_is_written_in_one_piece_with_the_finish_chunk(
    start: StartApi, path: str
) -> None:
    bench = await start("abc")
    client = bench.wire.connect()
    await client.send("POST", path, body=orjson.dumps(body_for(path, stream=True)))
    await client.read_head()
    pieces: list[bytes] = []
    while (data := await client.read_data()) is not None:
        pieces.append(data)
    assert pieces[-1].endswith(b"data: [DONE]\n\n")
    assert b"finish_reason" in pieces[-1]
    client.close()


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_headers_wait_for_the_first_step(start: StartApi, path: str, stream: bool) -> None:
    """4xx and 503 are real status codes, so a queued stream says nothing yet."""
    bench = await start("abc", is_automatic=False, max_running_requests=1)
    first, second = bench.wire.connect(), bench.wire.connect()
    for client in (first, second):
        await client.send("POST", path, body=orjson.dumps(body_for(path, stream=stream)))
        await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0) as waiting:
        await second.read_head()
    assert waiting.cancelled_caught
    if stream:
        assert (await first.read_head()).status == 200
    bench.finish_all()
    for client in (first, second):
        client.close()


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_what_piled_up_for_a_slow_reader_comes_as_one_event(
    start: StartApi, path: str
) -> None:
    bench = await start("abcdefghij", is_automatic=False)
    client = bench.wire.connect()
    await client.send("POST", path, body=orjson.dumps(body_for(path, stream=True)))
    await trio.testing.wait_all_tasks_blocked()
    await bench.finish_step()
    await client.read_head()
    for _ in range(4):
        await bench.finish_step()  # nobody reads the body meanwhile
    bench.finish_all()
    events = [event async for event in client.read_events()]
    chunks = [orjson.loads(event) for event in events[:-1]]
    texts = [text_of(choice) for chunk in chunks for choice in chunk["choices"]]
    assert "".join(texts) == "abcdefghij"
    assert len([text for text in texts if text]) < 10
    client.close()
