"""An HTTP/1.1 client that does what a library would not: stalls, half closes, pipelines, resets.

For tests. Nothing here has a limit of its own: put `trio.fail_after` around it.
"""

import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, suppress
from typing import Any, cast

import h11
import orjson
import trio
from attrs import frozen

Headers = Iterable[tuple[str, str]]

_RECEIVE_LEN = 65536


@frozen
class HttpResponse:
    """A whole response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


class HttpClient:
    """One connection. Methods that read wait for the server; `close` and `reset` never wait."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._h11 = h11.Connection(h11.CLIENT)

    @classmethod
    async def connect(
        cls, host: str, port: int, *, receive_buffer_len: int | None = None
    ) -> "HttpClient":
        """A small receive buffer makes the server's writes wait early when nothing is read."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
        with ExitStack() as failure:
            failure.callback(sock.close)
            if receive_buffer_len is not None:
                # Before connecting, or the window has been agreed on.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_len)
            await sock.connect((host, port))
            failure.pop_all()
        return cls(trio.SocketStream(sock))

    async def send(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        headers: Headers = (),
        then: bytes = b"",
    ) -> None:
        """Sends a request, and in the same write the bytes `then` behind it (pipelining)."""
        all_headers = [("Host", "test"), *headers]
        if body is not None:
            all_headers += [
                ("Content-Length", str(len(body))),
                ("Content-Type", "application/json"),
            ]
        data = self._h11.send(h11.Request(method=method, target=target, headers=all_headers))
        assert data is not None
        if body is not None:
            data += self._h11.send(h11.Data(data=body)) or b""
        data += self._h11.send(h11.EndOfMessage()) or b""
        await self.stream.send_all(data + then)

    async def read_head(self) -> HttpResponse:
        """Status and headers of the response, as soon as they have come."""
        event = await self._next_event()
        assert isinstance(event, h11.Response), event
        headers = {name.decode().lower(): value.decode() for name, value in event.headers}
        return HttpResponse(event.status_code, headers, b"")

    async def read_data(self) -> bytes | None:
        """Some more of the body; None at its end."""
        event = await self._next_event()
        if isinstance(event, h11.EndOfMessage):
            return None
        assert isinstance(event, h11.Data), event
        return bytes(event.data)

    async def read_response(self) -> HttpResponse:
        """All of the response; the connection is then ready for the next request."""
        head = await self.read_head()
        body = b""
        while (data := await self.read_data()) is not None:
            body += data
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        return HttpResponse(head.status, head.headers, body)

    async def get(self, target: str, *, headers: Headers = ()) -> HttpResponse:
        await self.send("GET", target, headers=headers)
        return await self.read_response()

    async def post_json(self, target: str, value: object, *, headers: Headers = ()) -> HttpResponse:
        await self.send("POST", target, body=orjson.dumps(value), headers=headers)
        return await self.read_response()

    async def read_events(self) -> AsyncIterator[str]:
        """The data of each server-sent event, until the body ends. Read the head first."""
        text = b""
        while (data := await self.read_data()) is not None:
            text += data
            *events, text = text.split(b"\n\n")
            for event in events:
                lines = event.decode().split("\n")
                values = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
                if values:
                    yield "\n".join(values)

    async def half_close(self) -> None:
        """Sends a FIN; responses can still be read."""
        await self.stream.send_eof()

    async def read_until_closed(self) -> bytes:
        """What still comes, raw, until the server closes; a reset counts as closing."""
        received = b""
        with suppress(trio.BrokenResourceError):
            while data := await self.stream.receive_some(_RECEIVE_LEN):
                received += data
        return received

    def close(self) -> None:
        """Closes at once, like a process that ends."""
        if isinstance(self.stream, trio.SocketStream):
            self.stream.socket.close()
        else:
            memory = cast("trio.StapledStream[Any, Any]", self.stream)
            memory.send_stream.close()
            memory.receive_stream.close()

    def reset(self) -> None:
        """Closes with a reset instead of a FIN. Sockets only."""
        assert isinstance(self.stream, trio.SocketStream), self.stream
        linger = struct.pack("ii", 1, 0)
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.stream.socket.close()

    async def __aenter__(self) -> "HttpClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _next_event(self) -> object:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.InformationalResponse):
                continue
            if event is not h11.NEED_DATA:
                return event
            self._h11.receive_data(bytes(await self.stream.receive_some(_RECEIVE_LEN)))
