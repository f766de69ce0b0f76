"""What is seen of a connection alone."""

import trio

from trioserve.testing.http import HttpClient


async def exchange(client: HttpClient, data: bytes) -> bytes:
    """All that the server answers until it closes."""
    received = b""

    async def receive() -> None:
        nonlocal received
        received = await client.read_until_closed()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await client.stream.send_all(data)
    return received
