"""What the seam tests ask the seam app, by wire."""

import h11
import trio

from trioserve.testing.http import HttpClient, HttpResponse
from trioserve.testing.server_process import ServerProcess, wait_until

MAX_WAIT_S = 30.0
"""Against a hang, and on a machine that does something else too: the server takes milliseconds, and
its own limits are a second at most."""


async def ask(server: ServerProcess, target: str) -> HttpResponse:
    """One GET on a connection of its own.

    Asked again if the connection is closed without an answer: the server's keep-alive time is a
    second here, and a machine that stands still for so long has it run out before the request is
    sent.
    """
    for _ in range(3):
        try:
            return await server.get(target)
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            continue
    return await server.get(target)


async def wait_count(server: ServerProcess, key: str, **want: int) -> None:
    """Until the server has counted that for the requests with this id."""
    count: dict[str, int] = {}

    async def is_reached() -> bool:
        nonlocal count
        count = (await ask(server, f"/count?id={key}")).json()
        return all(count[name] == value for name, value in want.items())

    try:
        await wait_until(is_reached, timeout_s=MAX_WAIT_S)
    except trio.TooSlowError:
        raise AssertionError(f"{count}, wanted {want}\n{server.output}") from None


async def open_silent(server: ServerProcess, key: str, then: bytes = b"") -> HttpClient:
    """A client whose handler waits without having written anything."""
    client = await server.connect()
    await client.send("GET", f"/silent?id={key}", then=then)
    await wait_count(server, key, opened=1, ended=0)
    return client


async def open_stream(
    server: ServerProcess, key: str, query: str = "", then: bytes = b""
) -> HttpClient:
    """A client that has read the first event."""
    client = await server.connect()
    await client.send("GET", f"/stream?id={key}{query}", then=then)
    assert (await client.read_head()).status == 200
    assert await client.read_data() is not None
    return client
