"""Sockets: listening on them, and finding those that Hypercorn accepted."""

import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from attrs import frozen

from trioserve import listen
from trioserve.errors import ConfigError
from trioserve.listen import (
    AddressPair,
    ConnectionSocket,
    find_connections,
    has_peer_closed,
    open_listeners,
    set_user_timeout_on_listeners,
    shutdown_connection,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux only")

USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", 0)


def user_timeout_ms(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, USER_TIMEOUT)


def open_one(stack: ExitStack, host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    sockets = open_listeners(host, port, backlog=8, user_timeout_s=7).insecure_sockets
    for sock in sockets:
        stack.enter_context(closing(sock))
    return sockets[0]


@frozen
class Connection:
    """Both ends of one accepted connection."""

    client: socket.socket
    server: socket.socket

    @property
    def pair(self) -> AddressPair:
        client, server = self.server.getpeername(), self.server.getsockname()
        return (client[0], client[1]), (server[0], server[1])


@pytest.fixture(params=["127.0.0.1", "::1"])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    with ExitStack() as stack:
        try:
            listener = open_one(stack, request.param)
        except ConfigError:
            pytest.skip(f"this machine has no {request.param}")
        listener.setblocking(True)
        client = stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
        server = stack.enter_context(listener.accept()[0])
        client.settimeout(5)
        server.settimeout(5)
        yield Connection(client, server)


def test_a_listener_takes_connections_before_anybody_accepts() -> None:
    with ExitStack() as stack:
        listener = open_one(stack)
        stack.enter_context(socket.create_connection(listener.getsockname()))


def test_the_longest_user_timeout_is_what_the_kernel_takes() -> None:
    (listener,) = open_listeners("127.0.0.1", 0, backlog=8, user_timeout_s=1e30).insecure_sockets
    with closing(listener):
        assert user_timeout_ms(listener) == 2**31 - 1


def test_accepted_sockets_inherit_the_user_timeout(connection: Connection) -> None:
    assert user_timeout_ms(connection.server) == 7000
    assert connection.server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_localhost_listens_on_one_port_for_all_its_addresses() -> None:
    sockets = open_listeners("localhost", 0, backlog=8, user_timeout_s=1).insecure_sockets
    try:
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
        assert "127.0.0.1" in {sock.getsockname()[0] for sock in sockets}
    finally:
        for sock in sockets:
            sock.close()


def test_every_address_means_ipv4_too() -> None:
    with ExitStack() as stack:
        try:
            listener = open_one(stack, "::")
        except ConfigError:
            pytest.skip("this machine has no IPv6")
        port = listener.getsockname()[1]
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))


def test_a_port_in_use_is_one_clear_line() -> None:
    with ExitStack() as stack:
        port = open_one(stack).getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            open_one(stack, port=port)
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: the port is in use"


@pytest.mark.parametrize(
    ("host", "port"), [("203.0.113.7", 8000), ("::ffff:203.0.113.7", 8000), ("a" * 70, 8000)]
)
def test_an_address_that_is_not_ours_is_one_clear_line(host: str, port: int) -> None:
    with ExitStack() as stack, pytest.raises(ConfigError) as caught:
        open_one(stack, host, port)
    assert str(caught.value).startswith("cannot listen on ")
    assert str(port) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_connection_is_found_by_its_addresses(connection: Connection) -> None:
    other = (connection.pair[1], connection.pair[0])
    found = find_connections([connection.pair, (("192.0.2.1", 1), ("192.0.2.2", 2))])
    assert list(found) == [connection.pair]
    assert found[connection.pair].fd == connection.server.fileno()
    # The client's end lies in this process too, with the addresses the other way round.
    assert find_connections([other])[other].fd == connection.client.fileno()
    connection.server.sendall(b"still open after the search")
    assert connection.client.recv(100)


def test_shutting_down_ends_both_directions_and_leaves_the_descriptor(
    connection: Connection,
) -> None:
    assert shutdown_connection(*connection.pair)
    assert connection.client.recv(100) == b""
    with pytest.raises(BrokenPipeError):
        connection.server.sendall(b"x")


def test_a_connection_that_is_gone_is_not_found(connection: Connection) -> None:
    pair = connection.pair
    connection.server.close()
    assert not shutdown_connection(*pair)
    assert not has_peer_closed(*pair)


def test_a_half_close_shows_although_bytes_wait_unread(connection: Connection) -> None:
    connection.client.sendall(b"pipelined")
    assert not has_peer_closed(*connection.pair)
    connection.client.shutdown(socket.SHUT_WR)
    poll = select.poll()
    poll.register(connection.server, select.POLLRDHUP)
    assert poll.poll(5000)
    assert has_peer_closed(*connection.pair)


def test_a_reset_shows_on_a_socket_that_was_known(connection: Connection) -> None:
    known = ConnectionSocket.of(connection.server.fileno())
    state = known.state()
    assert state is not None
    assert not state.has_peer_closed
    connection.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.client.close()
    with pytest.raises(ConnectionResetError):
        connection.server.recv(1)
    state = known.state()
    assert state is not None
    assert state.has_peer_closed


def test_acknowledged_bytes_are_counted(connection: Connection) -> None:
    known = ConnectionSocket.of(connection.server.fileno())
    before = known.state()
    connection.server.sendall(b"x" * 1000)
    connection.client.recv(1000, socket.MSG_WAITALL)
    connection.client.sendall(b"y")  # carries the acknowledgement, if nothing did before
    connection.server.recv(1)
    after = known.state()
    assert before is not None
    assert after is not None
    assert after.num_bytes_acked - before.num_bytes_acked == 1000


def test_a_descriptor_used_again_is_left_alone(connection: Connection) -> None:
    known = ConnectionSocket.of(connection.server.fileno())
    left, right = socket.socketpair()
    with left, right:
        fd = connection.server.detach()
        try:
            replaced = left.detach()
            os.dup2(replaced, fd)
            os.close(replaced)
            assert not known.shutdown()
            state = known.state()
            assert state is not None
            assert state.has_peer_closed
            right.sendall(b"untouched")
        finally:
            os.close(fd)


def test_listeners_that_others_made_get_the_user_timeout() -> None:
    """Bound ones too: Hypercorn's asyncio worker listens only after the lifespan has started."""
    with socket.socket() as listener, socket.socket() as bound, socket.socket() as unused:
        for sock in (listener, bound):
            sock.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            assert set_user_timeout_on_listeners(3.5) >= 2
            assert user_timeout_ms(listener) == user_timeout_ms(bound) == 3500
            assert user_timeout_ms(client) == user_timeout_ms(unused) == 0


def test_elsewhere_than_on_linux_nothing_is_found(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_DESCRIPTORS", Path("/nowhere"))
    monkeypatch.setattr(listen, "_TCP_INFO", None)
    monkeypatch.setattr(listen, "_TCP_USER_TIMEOUT", None)
    assert find_connections([connection.pair]) == {}
    assert not shutdown_connection(*connection.pair)
    assert not has_peer_closed(*connection.pair)
    assert ConnectionSocket.of(connection.server.fileno()).state() is None
    assert set_user_timeout_on_listeners(1) == 0
    with ExitStack() as stack:
        open_one(stack)
