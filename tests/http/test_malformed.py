"""No bytes that one connection sends can hurt another."""

import random

import pytest
import trio

from tests.http.seam_client import MAX_WAIT_S, ask, wait_count
from trioserve.testing.http2 import Http2Client
from trioserve.testing.server_process import ServerProcess

pytestmark = pytest.mark.slow

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
NOT_ASCII = b"\x82\x86\x04\x03/\xff\xfe\x41\x01a"  # GET, http, the path, the authority
HEADERS = len(NOT_ASCII).to_bytes(3, "big") + b"\x01\x05\x00\x00\x00\x01" + NOT_ASCII

GET = b"GET /now HTTP/1.1\r\nHost: a\r\n"
POST = b"POST /length HTTP/1.1\r\nHost: a\r\n"
UPGRADE = GET + b"Connection: Upgrade\r\nUpgrade: "
WORDS = [b"GET", b"POST", b"/now", b" ", b"\r\n", b"HTTP/1.1", b"Host: a", b":", b"\0", b"\xff"]

NUM_CONNECTIONS = 500


def malformed(rng: random.Random) -> bytes:
    """Bytes of the kinds that scanners, broken proxies and fuzzers send."""
    noise = rng.randbytes(rng.randrange(1, 400))
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    return rng.choice(
        [
            noise,
            b"".join(rng.choices(WORDS, k=rng.randrange(1, 30))),
            GET + noise + b"\r\n\r\n",
            GET + b"\r\n" + noise,
            GET + b"X: " + b"y" * 70000,
            GET.replace(b"now", b"n\xc3\xb6w") + b"\r\n",
            GET.replace(b"now", b"%ff%fe") + b"\r\n",
            POST + b"Content-Length: 5\r\n\r\n12",
            POST + b"Content-Length: -5\r\n\r\n12",
            POST + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n",
            POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + noise,
            # Upgrades that go on at once, or with settings that are none.
            UPGRADE + b"websocket\r\n" + key + noise,
            UPGRADE + b"websocket\r\n\r\n" + noise,
            UPGRADE + b"h2c\r\nHTTP2-Settings: !!!\r\n\r\n",
            UPGRADE + b"h2c\r\n\r\n" + noise,
            b"PRI * HTTP/2.0\r\n\r\n" + noise,
            PREFACE + noise,
            PREFACE + SETTINGS + noise,
            PREFACE + SETTINGS + HEADERS,
            # A frame for a stream that never was, a stream that depends on itself.
            PREFACE + SETTINGS + b"\x00\x00\x04\x00\x00\x00\x00\x00\x07abcd",
            PREFACE + SETTINGS + b"\x00\x00\x05\x02\x00\x00\x00\x00\x03\x00\x00\x00\x03\x10",
        ]
    )


async def attack(server: ServerProcess, rng: random.Random) -> None:
    client = await server.connect()
    data = malformed(rng)
    cut = rng.randrange(len(data))
    try:
        for piece in (data[:cut], data[cut:]) if rng.random() < 0.3 else (data,):
            await client.stream.send_all(piece)
        if rng.random() < 0.5:
            with trio.move_on_after(0.02):
                await client.read_until_closed()
        if rng.random() < 0.3:
            await client.half_close()
    except trio.BrokenResourceError:
        pass  # the server has had enough
    if rng.random() < 0.3:
        client.reset()
    else:
        client.close()


async def test_500_malformed_connections_leave_a_good_stream_alone(
    server: ServerProcess, key: str
) -> None:
    rng = random.Random(20)

    async def attack_in_turn(num_connections: int) -> None:
        for _ in range(num_connections):
            await attack(server, rng)

    async with await server.connect() as client, trio.open_nursery() as nursery:
        await client.send("GET", f"/stream?id={key}&events=100")
        for _ in range(10):
            nursery.start_soon(attack_in_turn, NUM_CONNECTIONS // 10)
        with trio.fail_after(MAX_WAIT_S):
            response = await client.read_response()
    assert response.body.count(b"data: ") == 100
    await wait_count(server, key, opened=1, ended=1, aborted=0)
    with trio.fail_after(MAX_WAIT_S):
        assert (await ask(server, "/now")).body == b"now"
        async with await Http2Client.connect(server.host, server.port) as http2:
            assert (await http2.get("/now")).body == b"now"


async def test_a_path_that_is_not_ascii_ends_its_own_connection_only(
    server: ServerProcess, key: str
) -> None:
    """On Hypercorn's Trio worker this exception would end the server."""
    async with await server.connect() as client:
        await client.send("GET", f"/stream?id={key}&events=50")
        async with await server.connect() as attacker:
            await attacker.stream.send_all(PREFACE + SETTINGS + HEADERS)
            with trio.fail_after(MAX_WAIT_S):
                await attacker.read_until_closed()
        with trio.fail_after(MAX_WAIT_S):
            assert (await client.read_response()).body.endswith(b"data: 49\n\n")
