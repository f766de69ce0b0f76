"""Connections close when they should and stay open when they may, under each way to start."""

import pytest
import trio

from trioserve.testing.server_process import ServerProcess

pytestmark = pytest.mark.slow


async def test_connection_close_closes_once_the_response_is_out(server: ServerProcess) -> None:
    async with await server.connect() as client:
        response = await client.get("/now", headers=[("Connection", "close")])
        assert response.body == b"now"
        with trio.fail_after(0.5):  # less than the keep-alive limit
            assert await client.read_until_closed() == b""


async def test_connection_close_closes_after_a_stream(server: ServerProcess) -> None:
    async with await server.connect() as client:
        response = await client.get("/stream?events=3", headers=[("Connection", "close")])
        assert response.body.endswith(b"data: 2\n\n")
        with trio.fail_after(0.5):
            assert await client.read_until_closed() == b""


async def test_http_1_0_closes_once_the_response_is_out(server: ServerProcess) -> None:
    async with await server.connect() as client:
        await client.stream.send_all(b"GET /now HTTP/1.0\r\n\r\n")
        with trio.fail_after(0.5):
            assert (await client.read_until_closed()).endswith(b"now")


async def test_a_connection_serves_one_request_after_another(server: ServerProcess) -> None:
    async with await server.connect() as client:
        for _ in range(3):
            assert (await client.get("/now")).body == b"now"
            assert (await client.post_json("/length", "four")).body == b"6"
            assert (await client.get("/stream?events=2")).status == 200


async def test_an_idle_connection_is_reaped(server: ServerProcess) -> None:
    async with await server.connect() as client:
        assert (await client.get("/stream?events=3")).status == 200
        with trio.fail_after(3):  # the limit is one second
            assert await client.read_until_closed() == b""


async def test_a_request_longer_than_the_keep_alive_limit_is_not_reaped(
    server: ServerProcess,
) -> None:
    async with await server.connect() as client:
        with trio.fail_after(5):
            assert (await client.get("/stream?events=2&period=0.6")).status == 200
            assert (await client.get("/now")).body == b"now"
