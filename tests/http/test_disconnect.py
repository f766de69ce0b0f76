"""A client that leaves ends its request, under each way to start: facts of the stack by wire."""

import pytest
import trio

from tests.http.seam_client import MAX_WAIT_S, ask, open_silent, open_stream, wait_count
from trioserve.testing.server_process import ServerProcess

pytestmark = pytest.mark.slow

NEXT_REQUEST = b"GET /now HTTP/1.1\r\nHost: test\r\n\r\n"


async def test_closing_while_the_handler_waits_silently_ends_the_request(
    server: ServerProcess, key: str
) -> None:
    client = await open_silent(server, key)
    client.close()
    await wait_count(server, key, ended=1)


async def test_closing_while_streaming_ends_the_request(server: ServerProcess, key: str) -> None:
    client = await open_stream(server, key)
    client.close()
    await wait_count(server, key, ended=1)


async def test_closing_while_a_begun_stream_is_silent_ends_the_request(
    server: ServerProcess, key: str
) -> None:
    client = await open_stream(server, key, "&events=1&then=silence")
    client.close()
    await wait_count(server, key, ended=1)


async def test_a_reset_ends_the_request(server: ServerProcess, key: str) -> None:
    client = await open_silent(server, key)
    client.reset()
    await wait_count(server, key, ended=1)


async def test_a_half_close_counts_as_a_disconnect(server: ServerProcess, key: str) -> None:
    async with await open_silent(server, key) as client:
        await client.half_close()
        await wait_count(server, key, ended=1)
        with trio.fail_after(MAX_WAIT_S):
            assert await client.read_until_closed() == b""


@pytest.mark.parametrize("leave", ["close", "half_close", "reset"])
async def test_pipelined_bytes_do_not_hide_that_a_silent_request_was_left(
    server: ServerProcess, key: str, leave: str
) -> None:
    client = await open_silent(server, key, then=NEXT_REQUEST)
    if leave == "half_close":
        await client.half_close()
    else:
        getattr(client, leave)()
    await wait_count(server, key, ended=1)
    if leave == "half_close":
        with trio.fail_after(MAX_WAIT_S):
            assert await client.read_until_closed() == b"", "nothing may be written"
    client.close()


async def test_a_reset_right_behind_pipelined_bytes_is_noticed(
    server: ServerProcess, key: str
) -> None:
    """Its socket has no peer address left by the time that anybody looks for it."""
    client = await server.connect()
    await client.send("GET", f"/silent?id={key}", then=NEXT_REQUEST)
    client.reset()
    with trio.fail_after(MAX_WAIT_S):
        while (await ask(server, f"/count?id={key}")).json()["ended"] == 0:
            if (await ask(server, f"/count?id={key}")).json()["opened"] == 0:
                break  # the reset came before the request was read


@pytest.mark.parametrize("query", ["", "&events=1&then=silence"])
async def test_pipelined_bytes_do_not_hide_that_a_stream_was_left(
    server: ServerProcess, key: str, query: str
) -> None:
    client = await open_stream(server, key, query, then=NEXT_REQUEST)
    client.close()
    await wait_count(server, key, ended=1)


async def test_pipelined_requests_are_answered_in_turn(server: ServerProcess) -> None:
    async with await server.connect() as client:
        with trio.fail_after(MAX_WAIT_S):
            await client.send("GET", "/stream?events=3", then=NEXT_REQUEST * 2)
            received = b""
            while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b"now"):
                received += await client.stream.receive_some(65536)


async def test_a_reader_that_stops_is_aborted_and_then_closed(
    server: ServerProcess, key: str
) -> None:
    async with await server.connect(receive_buffer_len=4096) as client:
        await client.send("GET", f"/flood?id={key}")
        await wait_count(server, key, opened=1, aborted=1, ended=1)
        with trio.fail_after(MAX_WAIT_S):
            await client.read_until_closed()


async def test_a_slow_reader_is_not_taken_for_one_that_stopped(
    server: ServerProcess, key: str
) -> None:
    async with await server.connect() as client:
        await client.send("GET", f"/stream?id={key}&events=3&period=0.3")
        with trio.fail_after(MAX_WAIT_S):
            response = await client.read_response()
    assert response.body.endswith(b"data: 2\n\n")
    await wait_count(server, key, ended=1, aborted=0)
