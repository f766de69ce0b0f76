"""Connections close when they should and stay open when they may, under each way to start."""

import pytest
import trio

from tests.http.seam_client import MAX_WAIT_S
from trioserve.testing.server_process import ServerProcess

pytestmark = pytest.mark.slow


MAX_CLOSE_S = 0.5
"""Less than the keep-alive limit, which would close the connection as well."""
ATTEMPTS = 3
"""A machine that does something else too may be late now and then."""


async def assert_closes(server: ServerProcess, request: bytes, end: bytes) -> None:
    """The answer to it ends like that, and the connection with it."""
    for _ in range(ATTEMPTS):
        async with await server.connect() as client:
            await client.stream.send_all(request)
            received = b""
            with trio.fail_after(MAX_WAIT_S):
                while not received.endswith(end):
                    received += await client.stream.receive_some(65536)
            with trio.move_on_after(MAX_CLOSE_S):
                assert await client.read_until_closed() == b""
                return
    pytest.fail(f"still open after {MAX_CLOSE_S:g} s, {ATTEMPTS} times")


async def test_connection_close_closes_once_the_response_is_out(server: ServerProcess) -> None:
    request = b"GET /now HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    await assert_closes(server, request, b"now")


async def test_connection_close_closes_after_a_stream(server: ServerProcess) -> None:
    request = b"GET /stream?events=3 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    await assert_closes(server, request, b"data: 2\n\n\r\n0\r\n\r\n")


async def test_http_1_0_closes_once_the_response_is_out(server: ServerProcess) -> None:
    await assert_closes(server, b"GET /now HTTP/1.0\r\n\r\n", b"now")


async def test_a_connection_serves_one_request_after_another(server: ServerProcess) -> None:
    async with await server.connect() as client:
        for _ in range(3):
            assert (await client.get("/now")).body == b"now"
            assert (await client.post_json("/length", "four")).body == b"6"
            assert (await client.get("/stream?events=2")).status == 200


async def test_an_idle_connection_is_reaped(server: ServerProcess) -> None:
    async with await server.connect() as client:
        assert (await client.get("/stream?events=3")).status == 200
        with trio.fail_after(MAX_WAIT_S):  # the limit is one second
            assert await client.read_until_closed() == b""


async def test_a_request_longer_than_the_keep_alive_limit_is_not_reaped(
    server: ServerProcess,
) -> None:
    async with await server.connect() as client:
        with trio.fail_after(MAX_WAIT_S):
            assert (await client.get("/stream?events=2&period=0.6")).status == 200
            assert (await client.get("/now")).body == b"now"
