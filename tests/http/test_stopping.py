"""The end of a server, under each way to start it."""

import contextlib
import signal

import pytest
import trio

from tests.http.seam_client import open_stream, wait_count
from trioserve.testing.server_process import ServerProcess

pytestmark = pytest.mark.slow


async def test_sigterm_lets_a_stream_finish_although_another_reader_has_stopped(
    own_server: ServerProcess,
) -> None:
    server = own_server
    await server.wait_ready("/now")
    async with await server.connect(receive_buffer_len=4096) as stalled:
        await stalled.send("GET", "/flood?id=stalled")
        await wait_count(server, "stalled", timeout_s=2, opened=1)
        async with await open_stream(server, "good", "&events=30") as good:
            server.send_signal(signal.SIGTERM)
            with trio.fail_after(3):
                rest = b""
                while (data := await good.read_data()) is not None:
                    rest += data
            assert rest.endswith(b"data: 29\n\n")
        # Its limit is 0.75 s; stock Hypercorn would wait for this reader for ever.
        assert await server.wait_exit(timeout_s=5) == 0


async def test_a_dead_lifespan_is_seen(own_server: ServerProcess) -> None:
    server = own_server
    await server.wait_ready("/now")
    async with await server.connect() as client:
        with contextlib.suppress(Exception):
            await client.post_json("/die", None)
        if "asyncio" in server.way:
            assert await server.wait_exit() != 0
