"""Sockets: those we listen on, and those that Hypercorn accepted and shows to nobody.

Hypercorn hands an ASGI app two addresses and no socket. Three promises need the socket all the
same: to close a connection whose shielded write waits for a reader that takes nothing, to notice
that the peer has left while Hypercorn's reader is parked, and to bound a write to a dead network
path. So this file looks for sockets among the descriptors of the process. It works on Linux; on
other systems nothing is found, every function here says so by its result, and the bounds are then
Hypercorn's own.

All functions are plain calls and no checkpoints. Call them on the event loop's thread: a descriptor
that belongs to a connection is closed there and nowhere else, so it cannot be reused meanwhile.
"""

import errno
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen
from hypercorn.config import Sockets

from trioserve.errors import ConfigError

Address = tuple[str, int]
AddressPair = tuple[Address, Address]
"""(client, server), as an ASGI scope gives them."""

_DESCRIPTORS = Path("/proc/self/fd")
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_TCP_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
_LONGEST_USER_TIMEOUT_MS = 2**31 - 1

# Linux, struct tcp_info: the state is its first byte, the count of acknowledged bytes an unsigned
# 64-bit number after eight one-byte fields, 24 four-byte fields and two eight-byte fields.
_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_OFFSET = 8 + 24 * 4 + 2 * 8
_TCP_INFO_LEN = _BYTES_ACKED_OFFSET + _BYTES_ACKED.size
# CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING: a FIN or a reset has come from the other side.
_PEER_CLOSED_STATES = frozenset({7, 8, 9, 11})


@frozen
class TcpState:
    """What the kernel knows of a connection at one moment."""

    has_peer_closed: bool
    """The other side sent a FIN (a half close counts) or a reset; or the socket is closed here, as
    asyncio does by itself after a reset."""
    num_bytes_acked: int
    """Bytes that have reached the other side so far; 0 where the kernel does not count them."""


@frozen
class ConnectionSocket:
    """A socket found among the descriptors of the process; it stays its finder's, not ours.

    The inode tells a socket from a later one that got the same descriptor, so this may be kept for
    as long as one likes: once the socket is closed, the methods find nothing to act on.
    """

    fd: int
    inode: int

    @classmethod
    def of(cls, fd: int) -> "ConnectionSocket":
        """Of a descriptor that is known to be the connection's. Raises OSError if it is closed."""
        return cls(fd, os.fstat(fd).st_ino)

    def state(self) -> TcpState | None:
        """None where the kernel cannot be asked."""
        if _TCP_INFO is None:
            return None
        if not self._is_open():
            return TcpState(has_peer_closed=True, num_bytes_acked=0)
        with suppress(OSError), _borrowed(self.fd) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_LEN)
            acked = 0
            if len(info) == _TCP_INFO_LEN:
                (acked,) = _BYTES_ACKED.unpack_from(info, _BYTES_ACKED_OFFSET)
            return TcpState(info[0] in _PEER_CLOSED_STATES, acked)
        return None

    def shutdown(self) -> bool:
        """Ends the connection in both directions and wakes whoever waits on it.

        The descriptor stays open: closing it is its owner's job. False if it is closed already.
        """
        if not self._is_open():
            return False
        with suppress(OSError), _borrowed(self.fd) as sock:
            sock.shutdown(socket.SHUT_RDWR)
            return True
        return False

    def _is_open(self) -> bool:
        try:
            return os.fstat(self.fd).st_ino == self.inode
        except OSError:
            return False


def find_connections(pairs: Collection[AddressPair]) -> dict[AddressPair, ConnectionSocket]:
    """The accepted sockets with these addresses, found in one pass over all descriptors.

    A pair is missing from the result when its socket is closed or reset, lies in another process,
    or when the addresses in the scope are not the socket's (a proxy middleware rewrote them).
    """
    wanted = set(pairs)
    found: dict[AddressPair, ConnectionSocket] = {}
    if not wanted:
        return found
    for fd, inode, sock in _stream_sockets():
        try:
            pair = (_address(sock.getpeername()), _address(sock.getsockname()))
        except OSError:
            continue  # not connected
        if pair in wanted:
            found[pair] = ConnectionSocket(fd, inode)
    return found


def shutdown_connection(client: Address, server: Address) -> bool:
    """Ends the connection between these addresses; True if its socket was found."""
    connection = find_connections([(client, server)]).get((client, server))
    return connection is not None and connection.shutdown()


def has_peer_closed(client: Address, server: Address) -> bool:
    """Whether the client has closed or half closed; False as well where that cannot be told."""
    connection = find_connections([(client, server)]).get((client, server))
    state = None if connection is None else connection.state()
    return state is not None and state.has_peer_closed


def set_user_timeout_on_listeners(timeout_s: float) -> int:
    """Bounds how long sent bytes may stay unacknowledged, on every listener of this process.

    For listeners that a stock Hypercorn made: accepted sockets inherit the option. Call it when the
    lifespan starts. Bound sockets count as listeners, because Hypercorn's asyncio worker calls
    `listen` only after that. Returns how many were set; 0 where the system lacks the option.
    """
    if _TCP_USER_TIMEOUT is None:
        return 0
    num_set = 0
    for _, _, sock in _stream_sockets():
        with suppress(OSError):
            if sock.getsockname()[1] != 0 and not _is_connected(sock):
                _set_user_timeout(sock, timeout_s)
                num_set += 1
    return num_set


def open_listeners(host: str, port: int, *, backlog: int, user_timeout_s: float) -> Sockets:
    """Sockets that listen on every address of `host`, in the form Hypercorn takes.

    Connections queue up from here on, before anybody accepts. Port 0 picks a free one, the same for
    all addresses. Raises ConfigError with one line that names host and port.
    """
    try:
        infos = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot listen on {_shown(host, port)}: {reason}") from error
    listeners: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(infos):
        chosen_port = listeners[0].getsockname()[1] if listeners else port
        try:
            listeners.append(
                _listener(family, (address[0], chosen_port, *address[2:]), backlog, user_timeout_s)
            )
        except OSError as error:
            # "localhost" names ::1 too on systems that have no IPv6: one address is enough then.
            # A port that is taken on one address is taken: half a server would confuse.
            if error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                failure = failure or error
                continue
            _close_all(listeners)
            raise _listen_error(host, port, error) from error
    if not listeners:
        assert failure is not None, f"no address and no error for {host!r}"
        raise _listen_error(host, port, failure) from failure
    return Sockets(secure_sockets=[], insecure_sockets=listeners, quic_sockets=[])


def _listener(
    family: socket.AddressFamily, address: tuple[str | int, ...], backlog: int, timeout_s: float
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Small events must leave at once; accepted sockets inherit both options.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _set_user_timeout(sock, timeout_s)
        if family == socket.AF_INET6:
            # "::" means every address, IPv4 included, as it does elsewhere.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        sock.bind(address)
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    return sock


def _set_user_timeout(sock: socket.socket, timeout_s: float) -> None:
    if _TCP_USER_TIMEOUT is not None:
        # 0 would switch it off, so the shortest limit is one millisecond; the kernel keeps an int.
        timeout_ms = min(max(1, round(timeout_s * 1000)), _LONGEST_USER_TIMEOUT_MS)
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, timeout_ms)


def _listen_error(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"cannot listen on {_shown(host, port)}: the port is in use")
    return ConfigError(f"cannot listen on {_shown(host, port)}: {error.strerror or error}")


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _address(name: tuple[str, int]) -> Address:
    # Hypercorn cuts IPv6 addresses to these two as well.
    return (name[0], name[1])


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _stream_sockets() -> Iterator[tuple[int, int, socket.socket]]:
    """(descriptor, inode, borrowed socket) of every TCP socket of the process."""
    try:
        fds = [int(entry.name) for entry in _DESCRIPTORS.iterdir()]
    except OSError:
        return  # not Linux
    for fd in fds:
        try:
            status = os.fstat(fd)
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with _borrowed(fd) as sock:
                is_tcp = (
                    sock.family in {socket.AF_INET, socket.AF_INET6}
                    and sock.type == socket.SOCK_STREAM
                )
                if is_tcp:
                    yield fd, status.st_ino, sock
        except OSError:
            continue  # closed meanwhile, by another thread


@contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A socket object for someone else's descriptor, which stays open.

    Rejected: `socket.fromfd`, which duplicates. A duplicate keeps a connection open that its owner
    closes, and costs a descriptor where there may be none left.
    """
    sock = socket.socket(fileno=fd)
    try:
        yield sock
    finally:
        sock.detach()


def listening_url() -> str:
    """Where this process listens, for people to paste; empty where that cannot be found out.

    For listeners that a stock Hypercorn made, so it is right once those listen.
    """
    for _, _, sock in _stream_sockets():
        with suppress(OSError):
            host, port = sock.getsockname()[:2]
            if port != 0 and not _is_connected(sock):
                return f"http://{_shown(host, port)}"
    return ""
