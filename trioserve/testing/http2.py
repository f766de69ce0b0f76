"""An HTTP/2 client over a plain connection (prior knowledge), many streams at once. For tests."""

from collections import defaultdict

import h2.config
import h2.connection
import h2.events
import h2.settings
import trio
from attrs import define, field

_RECEIVE_LEN = 65536


@define
class Http2Stream:
    """What has come for one stream so far."""

    status: int | None = None
    body: bytearray = field(factory=bytearray)
    is_ended: bool = False
    is_reset: bool = False


class Http2Client:
    """One connection. `read` alone reads from it, so one task at a time may wait.

    Data of the streams in `stalled` is not acknowledged, so that their windows close while the
    connection goes on. Nothing here has a limit of its own: put `trio.fail_after` around it.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.streams: defaultdict[int, Http2Stream] = defaultdict(Http2Stream)
        self.stalled: set[int] = set()
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))

    @classmethod
    async def connect(cls, host: str, port: int, *, window_len: int | None = None) -> "Http2Client":
        """`window_len` is how many bytes the server may send on a stream before it has to wait."""
        client = cls(await trio.open_tcp_stream(host, port))
        client._h2.initiate_connection()
        if window_len is not None:
            code = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
            client._h2.update_settings({code: window_len})
        await client._flush()
        return client

    async def send(self, method: str, target: str, *, is_ended: bool = True) -> int:
        """Sends a request's headers and returns its stream id; a body may follow."""
        stream_id = self._h2.get_next_available_stream_id()
        headers = [
            (":method", method),
            (":path", target),
            (":scheme", "http"),
            (":authority", "test"),
        ]
        self._h2.send_headers(stream_id, headers, end_stream=is_ended)
        await self._flush()
        return stream_id

    async def send_body(self, stream_id: int, data: bytes, *, is_ended: bool) -> None:
        """Sends one frame, which has to fit into the server's window."""
        self._h2.send_data(stream_id, data, end_stream=is_ended)
        await self._flush()

    async def widen_connection_window(self, increment_len: int) -> None:
        """Lets the server send that much more over all streams together."""
        self._h2.increment_flow_control_window(increment_len)
        await self._flush()

    async def reset(self, stream_id: int) -> None:
        self._h2.reset_stream(stream_id)
        await self._flush()

    async def read(self) -> bool:
        """Waits for something to come and notes it; False once the server has closed."""
        try:
            data = await self.stream.receive_some(_RECEIVE_LEN)
        except trio.BrokenResourceError:
            return False
        for event in self._h2.receive_data(data):
            self._note(event)
        await self._flush()
        return data != b""

    async def wait_headers(self, stream_id: int) -> Http2Stream:
        stream = self.streams[stream_id]
        while stream.status is None:
            assert await self.read(), "closed before the headers came"
        return stream

    async def wait_over(self, stream_id: int) -> Http2Stream:
        """Until the stream is ended or reset."""
        stream = self.streams[stream_id]
        while not (stream.is_ended or stream.is_reset):
            assert await self.read(), "closed before the stream was over"
        return stream

    async def get(self, target: str) -> Http2Stream:
        return await self.wait_over(await self.send("GET", target))

    def close(self) -> None:
        """Drops the connection without a goodbye."""
        self.stream.socket.close()

    async def __aenter__(self) -> "Http2Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            headers = {bytes(name): bytes(value) for name, value in event.headers}
            self.streams[event.stream_id].status = int(headers[b":status"])
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id].body += event.data
            if event.stream_id not in self.stalled:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].is_ended = True
        elif isinstance(event, h2.events.StreamReset):
            self.streams[event.stream_id].is_reset = True

    async def _flush(self) -> None:
        if data := self._h2.data_to_send():
            await self.stream.send_all(data)
