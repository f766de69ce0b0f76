"""HTTP/2 by prior knowledge: a stream ends alone, a connection takes its streams along."""

import pytest
import trio

from tests.http.seam_client import MAX_WAIT_S, ask, wait_count
from trioserve.testing.http2 import Http2Client
from trioserve.testing.server_process import ServerProcess, wait_until

pytestmark = pytest.mark.slow


async def connect(server: ServerProcess, *, window_len: int | None = None) -> Http2Client:
    return await Http2Client.connect(server.host, server.port, window_len=window_len)


async def test_resetting_a_stream_ends_its_request_alone(server: ServerProcess, key: str) -> None:
    async with await connect(server) as client:
        left = await client.send("GET", f"/stream?id={key}-left")
        silent = await client.send("GET", f"/silent?id={key}-silent")
        kept = await client.send("GET", f"/stream?id={key}-kept&events=50")
        with trio.fail_after(MAX_WAIT_S):
            await client.wait_headers(left)
            await client.reset(left)
            await client.reset(silent)
            await wait_count(server, f"{key}-left", ended=1)
            await wait_count(server, f"{key}-silent", ended=1)
            stream = await client.wait_over(kept)
    assert stream.is_ended
    assert stream.body.endswith(b"data: 49\n\n")


async def test_dropping_the_connection_ends_all_its_requests(
    server: ServerProcess, key: str
) -> None:
    async with await connect(server) as client:
        stream_id = await client.send("GET", f"/stream?id={key}")
        await client.send("GET", f"/silent?id={key}")
        with trio.fail_after(MAX_WAIT_S):
            await client.wait_headers(stream_id)
            await wait_count(server, key, opened=2, ended=0)
    await wait_count(server, key, ended=2)


async def test_dropping_the_connection_ends_a_response_that_waits_for_its_last_window(
    server: ServerProcess, key: str
) -> None:
    async with await connect(server, window_len=20) as client:
        client.stalled.add(stream_id := await client.send("GET", f"/stream?id={key}&events=5"))
        with trio.fail_after(MAX_WAIT_S):
            while len(client.streams[stream_id].body) < 20:
                await client.read()
    # The response is complete as far as the app can see; what ends it is a bound of five seconds,
    # or the stall limit of this server, which is shorter.
    await wait_count(server, key, opened=1, ended=1)


@pytest.mark.parametrize(
    ("target", "num_aborted"),
    [
        ("/flood?", 1),
        ("/stream?events=100&period=0&", 0),  # complete for the app, which has nothing to abort
    ],
)
async def test_a_stream_that_is_not_read_is_reset_and_its_connection_goes_on(
    server: ServerProcess, key: str, target: str, num_aborted: int
) -> None:
    async with await connect(server, window_len=100) as client:
        stream_id = await client.send("GET", f"{target}id={key}")
        client.stalled.add(stream_id)
        with trio.fail_after(MAX_WAIT_S):
            stalled = await client.wait_over(stream_id)
            assert stalled.is_reset
            await wait_count(server, key, opened=1, aborted=num_aborted, ended=1)
            assert (await client.get("/now")).body == b"now"


async def test_a_connection_that_does_not_take_the_reset_is_closed(
    server: ServerProcess, key: str
) -> None:
    """Its socket is not read at all, so the whole connection stands still."""
    async with await connect(server, window_len=2**30) as client:
        await client.widen_connection_window(2**30)
        await client.send("GET", f"/flood?id={key}")
        await wait_count(server, key, opened=1, aborted=1, ended=1)

        async def is_over() -> bool:
            return (await ask(server, "/open")).json() == 0

        await wait_until(is_over, timeout_s=MAX_WAIT_S)


async def test_a_body_that_breaks_off_resets_its_stream(server: ServerProcess, key: str) -> None:
    """Otherwise the client would wait for the rest for ever."""
    async with await connect(server) as client:
        with trio.fail_after(MAX_WAIT_S):
            broken = await client.get(f"/break?id={key}")
            assert broken.is_reset
            assert (await client.get("/now")).body == b"now"
    await wait_count(server, key, opened=1, ended=1)


async def test_data_for_a_stream_answered_early_does_not_end_the_connection(
    server: ServerProcess, key: str
) -> None:
    async with await connect(server) as client:
        kept = await client.send("GET", f"/stream?id={key}&events=30")
        refused = await client.send("POST", "/refuse", is_ended=False)
        with trio.fail_after(MAX_WAIT_S):
            assert (await client.wait_over(refused)).status == 413
            for _ in range(3):
                await client.send_body(refused, b"x" * 16384, is_ended=False)
            assert (await client.wait_over(kept)).body.endswith(b"data: 29\n\n")


async def test_an_idle_connection_is_reaped(server: ServerProcess) -> None:
    async with await connect(server) as client:
        with trio.fail_after(MAX_WAIT_S):  # the limit is one second
            assert (await client.get("/now")).is_ended
            while await client.read():
                pass
