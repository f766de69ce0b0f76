"""Streams as they travel: headers, when they go out, and how events share a write."""

import attrs
import orjson
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.api.answers import Answer, text_of
from tests.api.kit import ENDPOINTS, StartApi, body_for


@pytest.mark.row("S-G-003")
@pytest.mark.case(71)
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


@pytest.mark.row("S-G-003")
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


PING = b": ping\n\n"


@pytest.mark.row("S-N-023")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_silent_stream_is_sent_comments(
    start: StartApi, autojump_clock: MockClock, path: str
) -> None:
    bench = await start("ab", is_automatic=False, sse_ping_interval=15.0)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await bench.post(path, stream=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(50.0)
        await bench.finish_step()
        await trio.sleep(20.0)
        bench.finish_all()
    pieces = answers[0].body.split(PING)
    # Three before the first token and one after it, counted from what was sent last.
    assert len(pieces) == 5
    assert pieces[:3] == [b"", b"", b""]
    assert b'"a"' in pieces[3]
    assert attrs.evolve(answers[0], body=b"".join(pieces)).texts() == ["ab"]


@pytest.mark.row("S-N-023")
@pytest.mark.parametrize("interval_s", [0, 250.0])
async def test_a_stream_that_is_not_silent_for_so_long_has_no_comments(
    start: StartApi, autojump_clock: MockClock, interval_s: float
) -> None:
    bench = await start("ab", is_automatic=False, sse_ping_interval=interval_s)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await bench.post(ENDPOINTS[0], stream=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(200.0)
        bench.finish_all()
    assert PING not in answers[0].body


async def test_text_held_back_is_silence(start: StartApi, autojump_clock: MockClock) -> None:
    """Tokens that show nothing do not put the comment off."""
    bench = await start("STOx", is_automatic=False, sse_ping_interval=15.0, depth=1)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await bench.post(ENDPOINTS[0], stream=True, stop="STOP"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        for _ in range(3):
            await trio.sleep(10.0)
            await bench.finish_step()
        bench.finish_all()
    assert answers[0].body.count(PING) == 2
    assert b"STOx" in answers[0].body


@pytest.mark.case(74)
async def test_a_stream_has_no_time_to_be_over_in(
    start: StartApi, autojump_clock: MockClock
) -> None:
    """Case 74: cut after a minute, and logged as the client's doing."""
    bench = await start("abcdefgh", is_automatic=False, depth=1, sse_ping_interval=0)
    client = bench.wire.connect()
    await client.send("POST", ENDPOINTS[0], body=orjson.dumps(body_for(ENDPOINTS[0], stream=True)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.read_head)
        for _ in range(8):
            await trio.sleep(100.0)
            await bench.finish_step()
        bench.finish_all()
    events = [event async for event in client.read_events()]
    assert events[-1] == "[DONE]"
    texts = [orjson.loads(event)["choices"][0]["text"] for event in events[:-1]]
    assert "".join(texts) == "abcdefgh"
    client.close()
