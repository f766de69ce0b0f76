"""An HTTP/1.1 client as small as a load generator wants it: it shares the cores with the server."""

from collections.abc import Callable
from urllib.parse import urlsplit

import h11
import trio
from attrs import define, field, frozen


class WireError(Exception):
    """The server could not be reached, or broke the protocol, or closed in the middle."""


@frozen
class Target:
    """Where the server is. Make it with `Target.parse`."""

    host: str
    port: int
    is_tls: bool
    prefix: str
    api_key: str | None = None

    @classmethod
    def parse(cls, url: str, api_key: str | None = None) -> "Target":
        """Reads `http://host:port`, with or without a trailing `/v1`."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or parts.hostname is None:
            raise ValueError(f"not an http address: {url!r}")
        is_tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, prefix, api_key)


@define(eq=False)
class Connection:
    """One connection that carries one request at a time.

    Made by `Connection.open` in the task that uses it. A request that does not run to its end, for
    whatever reason, leaves the connection useless: close it with `drop`.
    """

    _target: Target
    _stream: trio.abc.Stream
    _h11: h11.Connection = field(factory=lambda: h11.Connection(h11.CLIENT))

    @classmethod
    async def open(cls, target: Target) -> "Connection":
        """Connects; raises WireError."""
        stream: trio.abc.Stream
        try:
            if target.is_tls:
                stream = await trio.open_ssl_over_tcp_stream(target.host, target.port)
            else:
                stream = await trio.open_tcp_stream(target.host, target.port)
        except OSError as error:
            raise WireError(f"cannot connect: {error}") from error
        return cls(target, stream)

    @property
    def is_reusable(self) -> bool:
        """The last exchange ended whole and the server keeps the connection."""
        return self._h11.our_state is h11.IDLE and self._h11.their_state is h11.IDLE

    async def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Writes a whole request."""
        headers = [("Host", f"{self._target.host}:{self._target.port}"), ("Accept", "*/*")]
        if self._target.api_key is not None:
            headers.append(("Authorization", f"Bearer {self._target.api_key}"))
        if method == "POST":
            headers.append(("Content-Type", "application/json"))
            headers.append(("Content-Length", str(len(body))))
        request = h11.Request(method=method, target=self._target.prefix + path, headers=headers)
        sent = self._h11.send(request), self._h11.send(h11.Data(body)) if body else b""
        end = self._h11.send(h11.EndOfMessage())
        try:
            await self._stream.send_all(b"".join(part or b"" for part in (*sent, end)))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise WireError(f"the server closed before the request was written: {error}") from error

    async def receive(self, on_data: Callable[[bytes], object]) -> int:
        """Reads the response, hands each piece of its body to `on_data`, returns the status."""
        status = 0
        try:
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    self._h11.receive_data(bytes(await self._stream.receive_some(65536)))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    on_data(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    raise WireError("the server closed without a response")
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
            raise WireError(f"the response broke off: {error}") from error
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        return status

    async def drop(self) -> None:
        """Closes at once, whatever is under way; works in a cancelled task."""
        await trio.aclose_forcefully(self._stream)


async def fetch(target: Target, method: str, path: str, body: bytes = b"") -> bytes:
    """One request on a connection of its own; returns the body, raises WireError unless 200."""
    parts: list[bytes] = []
    connection = await Connection.open(target)
    try:
        await connection.send(method, path, body)
        status = await connection.receive(parts.append)
    finally:
        await connection.drop()
    text = b"".join(parts)
    if status != 200:
        raise WireError(f"{method} {path}: {status}: {text[:300].decode(errors='replace')}")
    return text


@define(eq=False)
class EventLines:
    """Cuts a server-sent event stream into the payloads of its `data:` lines."""

    _tail: bytes = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the payloads that `data` completes, in order."""
        *lines, self._tail = (self._tail + data).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
