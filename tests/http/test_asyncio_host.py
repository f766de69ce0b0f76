"""Guest mode: a Trio app on an asyncio loop, under a server that the tests play."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import sniffio
import trio
import trio.lowlevel
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

from trioserve.asyncio_host import AsyncioHost

LIFESPAN = cast("Scope", {"type": "lifespan", "asgi": {}, "state": {}})
HTTP = cast("Scope", {"type": "http", "asgi": {}})

RequestHandler = Callable[[ASGIReceiveCallable, ASGISendCallable], Awaitable[None]]


class App:
    """A Trio app with a plain lifespan; `handle` is the request handler."""

    def __init__(self, handle: RequestHandler | None = None) -> None:
        self.handle = handle
        self.trace: list[str] = []
        self.fail = trio.Event()

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] == "lifespan":
            try:
                await self.live(receive, send)
            finally:
                self.trace.append("lifespan over")
        else:
            assert self.handle is not None
            await self.handle(receive, send)

    async def live(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.engine)
            assert (await receive())["type"] == "lifespan.startup"
            await send({"type": "lifespan.startup.complete"})
            assert (await receive())["type"] == "lifespan.shutdown"
            nursery.cancel_scope.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def engine(self) -> None:
        await self.fail.wait()
        raise RuntimeError("the engine died")


class Server:
    """What Hypercorn's asyncio worker does, on the loop that runs."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.ended_by: list[BaseException] = []
        self.host = AsyncioHost(app, end_process=self.ended_by.append)
        self.to_app: asyncio.Queue[Any] = asyncio.Queue()
        self.from_app: asyncio.Queue[Any] = asyncio.Queue()
        self.lifespan = asyncio.create_task(self._live())

    async def _live(self) -> None:
        await self.host(LIFESPAN, self.to_app.get, self._note)

    async def _note(self, message: Any) -> None:
        if message["type"] == "lifespan.startup.failed":
            raise LookupError(message["message"])
        if message["type"] == "lifespan.shutdown.complete":
            self.app.trace.append("told complete")
        await self.from_app.put(message)

    async def start(self) -> None:
        await self.to_app.put({"type": "lifespan.startup"})
        assert (await self.from_app.get())["type"] == "lifespan.startup.complete"

    async def stop(self) -> None:
        await self.to_app.put({"type": "lifespan.shutdown"})
        await self.lifespan
        assert (await self.from_app.get())["type"] == "lifespan.shutdown.complete"


def on_asyncio(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Runs an async test on asyncio, where pytest-trio would run it on Trio."""

    def run() -> None:
        async def main() -> None:
            async with asyncio.timeout(10):
                await test()

        asyncio.run(main())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def wait_for(queue: "asyncio.Queue[str]", text: str) -> None:
    while await queue.get() != text:
        pass


@on_asyncio
async def test_requests_and_answers_go_across() -> None:
    async def echo(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        await trio.lowlevel.checkpoint()
        message = cast("Any", await receive())
        await send({"type": "http.response.body", "body": message["body"], "more_body": False})

    server = Server(App(echo))
    await server.start()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        sent.append(message["body"])

    async def one(number: int) -> None:
        async def receive() -> Any:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": b"%d" % number}

        await server.host(HTTP, receive, send)

    await asyncio.gather(*[one(number) for number in range(20)])
    assert sorted(sent) == sorted(b"%d" % number for number in range(20))
    await server.stop()
    assert server.ended_by == []


@on_asyncio
async def test_the_run_is_over_before_the_server_hears_that_the_lifespan_is() -> None:
    class SlowToEnd(App):
        async def __call__(
            self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
        ) -> None:
            await super().__call__(scope, receive, send)
            await trio.lowlevel.checkpoint()
            self.trace.append("run over")

    server = Server(app := SlowToEnd())
    await server.start()
    await server.stop()
    assert app.trace == ["lifespan over", "run over", "told complete"]
    with pytest.raises(RuntimeError, match="no lifespan"):
        await server.host(HTTP, server.to_app.get, server.to_app.put)


@on_asyncio
async def test_cancelling_the_lifespan_ends_the_run() -> None:
    server = Server(app := App())
    await server.start()
    server.lifespan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server.lifespan
    assert app.trace == ["lifespan over"]
    assert server.ended_by == []


@on_asyncio
async def test_a_cancelled_request_cancels_the_apps_scope_and_waits_for_its_exit() -> None:
    trace: asyncio.Queue[str] = asyncio.Queue()

    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        trace.put_nowait("begun")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            trace.put_nowait("ended")

    server = Server(App(handle))
    await server.start()
    request = asyncio.create_task(server.host(HTTP, server.to_app.get, server.to_app.put))
    await wait_for(trace, "begun")
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert trace.get_nowait() == "ended"
    await server.stop()


@on_asyncio
async def test_a_second_cancellation_does_not_leave_the_app_behind() -> None:
    trace: asyncio.Queue[str] = asyncio.Queue()

    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        try:
            trace.put_nowait("begun")
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            trace.put_nowait("ended")

    server = Server(App(handle))
    await server.start()
    request = asyncio.create_task(server.host(HTTP, server.to_app.get, server.to_app.put))
    await wait_for(trace, "begun")
    request.cancel()
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert trace.get_nowait() == "ended"
    await server.stop()


@on_asyncio
async def test_the_servers_receive_is_cancelled_with_the_apps_scope() -> None:
    trace: list[str] = []

    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        with trio.move_on_after(0.01):
            await receive()
        trace.append("moved on")

    async def receive() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            trace.append("cancelled")
            raise

    server = Server(App(handle))
    await server.start()
    await server.host(HTTP, receive, server.to_app.put)
    assert trace == ["cancelled", "moved on"]
    await server.stop()


@on_asyncio
async def test_a_message_that_came_together_with_a_cancellation_is_not_lost() -> None:
    got: list[Any] = []

    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        with trio.move_on_after(0.01):
            got.append(await receive())

    async def receive() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"type": "http.disconnect"}  # the server had it already

    server = Server(App(handle))
    await server.start()
    await server.host(HTTP, receive, server.to_app.put)
    assert got == [{"type": "http.disconnect"}]
    await server.stop()


@on_asyncio
async def test_a_request_that_fails_is_reported_to_the_server_and_others_go_on() -> None:
    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if cast("Any", await receive())["type"] == "fail":
            raise ValueError("this one alone")

    server = Server(App(handle))
    await server.start()

    async def receive_fail() -> Any:
        return {"type": "fail"}

    async def receive() -> Any:
        return {"type": "http.request"}

    with pytest.raises(ValueError, match="this one alone"):
        await server.host(HTTP, receive_fail, server.to_app.put)
    await server.host(HTTP, receive, server.to_app.put)
    await server.stop()
    assert server.ended_by == []


@on_asyncio
async def test_an_exception_of_the_servers_send_is_raised_in_the_app() -> None:
    raised: list[BaseException] = []

    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        try:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ConnectionError as error:
            raised.append(error)

    async def send(message: Any) -> None:
        raise ConnectionResetError

    server = Server(App(handle))
    await server.start()
    await server.host(HTTP, server.to_app.get, send)
    assert [type(error) for error in raised] == [ConnectionResetError]
    await server.stop()


@on_asyncio
async def test_an_engine_that_dies_ends_open_requests_and_then_the_process() -> None:
    trace: asyncio.Queue[str] = asyncio.Queue()

    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        trace.put_nowait("begun")
        try:
            await trio.sleep_forever()
        finally:
            trace.put_nowait("ended")

    server = Server(app := App(handle))
    await server.start()
    request = asyncio.create_task(server.host(HTTP, server.to_app.get, server.to_app.put))
    await wait_for(trace, "begun")
    trio.lowlevel.current_trio_token().run_sync_soon(app.fail.set)
    with pytest.raises(ExceptionGroup):
        await server.lifespan
    await request
    assert trace.get_nowait() == "ended"
    assert len(server.ended_by) == 1


@on_asyncio
async def test_a_lifespan_that_ends_by_itself_ends_the_process() -> None:
    class Short(App):
        async def live(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            await receive()
            await send({"type": "lifespan.startup.complete"})

    server = Server(Short())
    await server.start()
    with pytest.raises(ExceptionGroup):
        await server.lifespan
    assert len(server.ended_by) == 1


@on_asyncio
async def test_a_start_up_reported_as_failed_is_left_to_the_server() -> None:
    class Failing(App):
        async def live(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": "no model"})

    server = Server(Failing())
    await server.to_app.put({"type": "lifespan.startup"})
    with pytest.raises(ExceptionGroup) as caught:
        await server.lifespan
    assert caught.group_contains(LookupError, match="no model")
    assert server.ended_by == []


@on_asyncio
async def test_the_servers_tasks_do_not_see_trios_context() -> None:
    libraries: list[str] = []

    async def handle(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        libraries.append(sniffio.current_async_library())
        await receive()
        libraries.append(sniffio.current_async_library())

    async def receive() -> Any:
        libraries.append(sniffio.current_async_library())
        return {"type": "http.request"}

    server = Server(App(handle))
    await server.start()
    assert not trio.lowlevel.in_trio_task()
    await server.host(HTTP, receive, server.to_app.put)
    assert libraries == ["trio", "asyncio", "trio"]
    await server.stop()
