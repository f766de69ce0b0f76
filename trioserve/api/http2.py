"""Resetting one HTTP/2 stream, which ASGI has no message for.

Hypercorn ends a response that its app leaves unfinished by closing the HTTP/1.1 connection; on
HTTP/2 it sends nothing, so the client would wait for ever. The stream has to be reset, and the only
way to Hypercorn's connection object is through the `send` it gave us. Where `send` is something
else (a middleware, another server) nothing is done.
"""

from contextlib import suppress
from inspect import ismethod

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.http_stream import HTTPStream


async def reset_stream(send: object) -> None:
    """Resets the stream whose ASGI `send` this is, and lets Hypercorn drop what it buffered for it.

    Does nothing if the stream is closed already. May wait for the socket like any write.
    """
    stream = send.__self__ if ismethod(send) else None
    if not isinstance(stream, HTTPStream) or not ismethod(stream.send):
        return
    protocol = stream.send.__self__
    if not isinstance(protocol, H2Protocol):
        return
    with suppress(ProtocolError):  # closed by the client, or complete
        protocol.connection.reset_stream(stream.stream_id, ErrorCodes.CANCEL)
        # The task that sends finds the stream closed and forgets its buffer, as it does after a
        # reset that came from the client.
        await protocol._window_updated(stream.stream_id)
        await protocol._flush()
