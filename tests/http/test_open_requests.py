"""The watch over open requests, on a clock that the test owns and without a socket."""

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.http.traced_app import TracedApp
from trioserve.api.open_requests import OpenRequest, OpenRequests, watch_connections
from trioserve.engine.abort_reason import AbortReason
from trioserve.listen import ConnectionSocket
from trioserve.testing.memory_server import MemoryServer

# On this clock a hang is for ever.
pytestmark = pytest.mark.timeout(30)


@pytest.fixture
async def app() -> TracedApp:
    return TracedApp(num_events=4)


def watch(app: TracedApp, nursery: trio.Nursery) -> None:
    nursery.start_soon(partial(watch_connections, app.open_requests, stall_timeout_s=30))


async def test_a_reader_that_takes_nothing_is_aborted_at_the_limit(
    app: TracedApp, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        watch(app, nursery)
        client = MemoryServer(app, nursery).connect()
        await client.send("GET", "/")
        await trio.sleep(29.5)
        assert app.trace == ["opened"]
        await trio.sleep(1)
        # The write is shielded and, without a socket to shut down, goes on hanging; the sequences
        # are gone all the same.
        assert app.trace == ["opened", "aborted: stalled"]
        client.close()
        await wait_all_tasks_blocked()
        assert app.trace[-1] == "ended"
        nursery.cancel_scope.cancel()


async def test_a_slow_reader_is_never_aborted(app: TracedApp, autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        watch(app, nursery)
        client = MemoryServer(app, nursery).connect()
        await client.send("GET", "/")
        await client.read_head()
        num_read = 0
        while await client.read_data() is not None:
            num_read += 1
            await trio.sleep(25)
        assert num_read == 4
        await wait_all_tasks_blocked()
        assert app.trace == ["opened", "body", "ended"]
        nursery.cancel_scope.cancel()


async def test_the_stall_clock_stands_while_no_write_is_pending(
    app: TracedApp, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        watch(app, nursery)
        client = MemoryServer(app, nursery).connect()
        await client.send("GET", "/silent")
        await trio.sleep(100)
        assert app.trace == ["opened"]
        nursery.cancel_scope.cancel()


async def test_without_open_requests_the_watch_does_not_wake(autojump_clock: MockClock) -> None:
    app = TracedApp()
    async with trio.open_nursery() as nursery:
        watch(app, nursery)
        await wait_all_tasks_blocked()
        began_at = trio.current_time()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")
        assert trio.current_time() == began_at
        nursery.cancel_scope.cancel()


async def test_a_drain_ends_pending_writes_and_nothing_else(
    app: TracedApp, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        server = MemoryServer(app, nursery)
        await (stalled := server.connect()).send("GET", "/")
        await server.connect().send("GET", "/silent")
        await wait_all_tasks_blocked()
        assert app.open_requests.end_pending_writes() == 1
        assert app.trace == ["opened", "opened", "aborted: shutdown"]
        stalled.close()
        await wait_all_tasks_blocked()
        assert len(app.open_requests) == 1
        nursery.cancel_scope.cancel()


async def test_wait_none_returns_once_the_last_request_is_over(
    app: TracedApp, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        server = MemoryServer(app, nursery)
        first, second = server.connect(), server.connect()
        await first.send("GET", "/silent")
        await second.send("GET", "/silent")
        await wait_all_tasks_blocked()
        is_over = trio.Event()

        async def wait() -> None:
            await app.open_requests.wait_none()
            is_over.set()

        nursery.start_soon(wait)
        first.close()
        await wait_all_tasks_blocked()
        assert not is_over.is_set()
        second.close()
        await is_over.wait()
        assert app.trace == ["opened", "opened", "ended", "ended"]


async def test_a_socket_that_nobody_named_is_found_by_its_addresses() -> None:
    """Where the server is not contained, a scope has addresses and no socket."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as listener:
        client = await trio.open_tcp_stream(*listener.socket.getsockname())
        async with client, await listener.accept() as server:
            addresses = (server.socket.getpeername(), server.socket.getsockname())
            request = OpenRequest(is_http2=False, addresses=addresses, opened_at=0.0)
            requests = OpenRequests()
            with requests.opened(request), request.pending_write(), trio.fail_after(5):
                assert requests.end_pending_writes() == 1
                assert await client.receive_some() == b""
            assert request.cancel_scope.cancel_called


async def test_a_client_that_closes_at_the_end_of_its_response_aborts_nothing() -> None:
    """The watch may look between the last byte and the end of the request."""
    aborts: list[AbortReason] = []
    request = OpenRequest(is_http2=False, addresses=None, opened_at=0.0)
    request.on_end = aborts.append
    request.is_finishing = True
    request.end(AbortReason.CANCELLED, is_connection_closed=True)
    assert aborts == []
    assert not request.cancel_scope.cancel_called


async def test_a_client_that_the_watch_sees_leave_counts_like_any_other_that_left() -> None:
    """Whether Hypercorn or the watch is first is chance, and no dashboard should see it."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as listener:
        client = await trio.open_tcp_stream(*listener.socket.getsockname())
        async with await listener.accept() as server, trio.open_nursery() as nursery:
            request = OpenRequest(
                is_http2=False,
                addresses=None,
                opened_at=trio.current_time(),
                socket=ConnectionSocket.of(server.socket.fileno()),
            )
            reasons: list[AbortReason] = []
            request.on_end = reasons.append
            requests = OpenRequests()
            watching = partial(watch_connections, requests, stall_timeout_s=30, poll_s=0.01)
            with requests.opened(request), trio.fail_after(5):
                nursery.start_soon(watching)
                await client.aclose()
                while not request.is_ended:  # noqa: ASYNC110  # it tells nobody
                    await trio.sleep(0.01)
            assert reasons == [AbortReason.CANCELLED]
            nursery.cancel_scope.cancel()
