"""The end of a server, under each way to start it."""

import signal
from contextlib import suppress

import h11
import pytest
import trio

from tests.http.conftest import WAYS, start_seam_app
from tests.http.seam_client import MAX_WAIT_S, ask, open_stream, wait_count
from trioserve.testing.server_process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", WAYS)
async def test_sigterm_lets_a_stream_finish_although_another_reader_has_stopped(way: str) -> None:
    with start_seam_app(way) as server:
        await server.wait_ready("/now")
        async with await server.connect(receive_buffer_len=4096) as stalled:
            await stalled.send("GET", "/flood?id=stalled")
            await wait_count(server, "stalled", opened=1)
            async with await open_stream(server, "good", "&events=30") as good:
                server.send_signal(signal.SIGTERM)
                rest = b""
                with trio.fail_after(MAX_WAIT_S):
                    while (data := await good.read_data()) is not None:
                        rest += data
                assert rest.endswith(b"data: 29\n\n")
            # The stall limit is 0.5 s; a stock Hypercorn would wait for this reader for ever.
            assert await server.wait_exit(timeout_s=MAX_WAIT_S) == 0


async def post(server: ServerProcess, target: str) -> None:
    """Sends a request that may or may not be answered."""
    await server.wait_ready("/now")
    async with await server.connect() as client:
        with suppress(h11.RemoteProtocolError, trio.BrokenResourceError):
            await client.post_json(target, None)


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_ends_itself_reports_a_failure(way: str) -> None:
    with start_seam_app(way) as server:
        await post(server, "/exit")
        # Hypercorn's parent process would report 0 whatever its worker's code is.
        assert await server.wait_exit() in {3, -signal.SIGUSR1}


async def test_an_engine_that_dies_under_serve_ends_the_process() -> None:
    with start_seam_app("serve") as server:
        await post(server, "/die")
        assert await server.wait_exit() == 1
        assert "the engine died" in server.output


async def test_an_engine_that_dies_in_guest_mode_ends_the_process() -> None:
    with start_seam_app("hypercorn-asyncio") as server:
        await post(server, "/die")
        assert await server.wait_exit() == -signal.SIGUSR1
        assert "ended by" in server.output
        assert "the engine died" in server.output


async def test_hypercorn_goes_on_without_a_lifespan_that_died() -> None:
    """Why the app itself has to end the process under `-k trio`."""
    with start_seam_app("hypercorn-trio") as server:
        await post(server, "/die")
        await server.wait_output("shutdown without Lifespan support")
        assert (await ask(server, "/now")).status == 200
