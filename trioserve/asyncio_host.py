"""The Trio app inside Hypercorn's default worker, which runs asyncio.

`AsyncioHost` is an ASGI app for an asyncio server. When the server starts the lifespan, it starts a
guest run of Trio on the server's loop; each request is a task in that run and stands for the
server's task that called us. Two rules keep the loops apart:

- host code enters Trio through `TrioToken.run_sync_soon` alone;
- Trio code reaches the server by making an asyncio task for each `receive` and `send`, and waits
  until that task has ended, cancelled or not: nothing of the server's is left half done.

Rejected: stepping the server's coroutines from Trio tasks, which saves a hop. asyncio's locks and
timeouts need `asyncio.current_task()`.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio
from attrs import define, field
from hypercorn.typing import (
    ASGIFramework,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    Scope,
)

from trioserve.api.connection import RESET_KEY
from trioserve.api.http2 import reset_stream

if TYPE_CHECKING:
    from outcome import Outcome

logger = getLogger(__name__)

T = TypeVar("T")


class AsyncioHost:
    """An ASGI app for an asyncio server around an ASGI app for Trio.

    One guest run a loop: it begins with the lifespan call and is over before the server is told
    that the lifespan is, or when the lifespan's task is cancelled.

    `end_process` is called with the reason when the run ends although the server did not ask for
    it: the server would log that and go on without an engine. It should not return.
    """

    def __init__(
        self, app: ASGIFramework, *, end_process: Callable[[BaseException], object]
    ) -> None:
        self._app = app
        self._end_process = end_process
        self._run: _GuestRun | None = None

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif self._run is None:
            raise RuntimeError("no lifespan is running, so there is no engine to ask")
        else:
            await self._run.call(self._app, scope, receive, send)

    async def _live(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if self._run is not None:
            raise RuntimeError("the lifespan is running already")
        logger.warning("running inside Hypercorn's asyncio worker; `hypercorn -k trio` is faster")
        self._run = run = _GuestRun()
        lifespan = _Lifespan(self._app, scope)
        try:
            await run.live(lifespan.run, receive, send)
        except (Exception, BaseExceptionGroup) as error:
            # A start-up that the app reported as failed comes back as the server's own exception,
            # and the server knows what to do with that one.
            if not lifespan.is_shutting_down and not lifespan.is_refused_by_host(error):
                self._end_process(error)
            raise
        finally:
            self._run = None
        if lifespan.last_message is not None:
            await send(lifespan.last_message)


@define(eq=False)
class _Lifespan:
    """The app's lifespan call, on the Trio side. Keeps the message that says it is over."""

    app: ASGIFramework
    scope: Scope
    is_shutting_down: bool = field(default=False, init=False)
    host_error: Exception | None = field(default=None, init=False)
    last_message: ASGISendEvent | None = field(default=None, init=False)

    async def run(self, bridge: "_Bridge") -> None:
        async def receive() -> ASGIReceiveEvent:
            event = await bridge.receive()
            if event["type"] == "lifespan.shutdown":
                self.is_shutting_down = True
            return event

        async def send(message: ASGISendEvent) -> None:
            if message["type"] in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
                # The server stops its loop when it hears this, so the guest run has to end first.
                self.last_message = message
                return
            try:
                await bridge.send(message)
            except Exception as error:
                self.host_error = error
                raise

        await self.app(self.scope, receive, send)
        if not self.is_shutting_down:
            raise RuntimeError("the app's lifespan ended by itself")

    def is_refused_by_host(self, error: BaseException) -> bool:
        """Whether it is, or holds, what the server raised at a message of ours."""
        if isinstance(error, BaseExceptionGroup):
            return any(self.is_refused_by_host(inner) for inner in error.exceptions)
        return error is self.host_error


class _GuestRun:
    """One guest run of Trio. Methods without "in Trio" belong to the host's side."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        # What the host's tasks see, so that nothing set in a Trio task (which library runs, the
        # request at hand) shows up in them.
        self.context = contextvars.copy_context()
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken
        self._calls: trio.Nursery | None = None

    async def live(
        self,
        main: Callable[["_Bridge"], Awaitable[None]],
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
    ) -> None:
        """Returns or raises as `main` does, once the run is over; cancelling cancels the run."""
        over: asyncio.Future[Outcome[None]] = self.loop.create_future()
        trio.lowlevel.start_guest_run(
            self._main,
            partial(main, _Bridge(self, self._scope, receive, send)),
            run_sync_soon_threadsafe=self.loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self.loop.call_soon,
            done_callback=over.set_result,
            # asyncio's signal handlers use it, and Hypercorn uses those.
            host_uses_signal_set_wakeup_fd=True,
        )
        self._token = trio.lowlevel.current_trio_token()
        await _wait_until_over(over, on_cancel=partial(self.enter, self._scope.cancel))
        over.result().unwrap()

    async def call(
        self,
        app: ASGIFramework,
        scope: Scope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
    ) -> None:
        """Returns or raises as the app does; cancelling cancels the app and waits for its exit."""
        cancel_scope = trio.CancelScope()
        over: asyncio.Future[None] = self.loop.create_future()
        bridge = _Bridge(self, cancel_scope, receive, send)
        if scope["type"] == "http":
            reset = partial(bridge.cross, partial(reset_stream, send))
            scope = cast("Scope", {**scope, RESET_KEY: reset})
        self._token.run_sync_soon(
            self._start_in_trio, partial(app, scope, bridge.receive, bridge.send), bridge, over
        )
        await _wait_until_over(over, on_cancel=partial(self.enter, cancel_scope.cancel))
        over.result()

    def enter(self, function: Callable[..., object], *args: object) -> None:
        """Calls the function in Trio, soon; after the end of the run there is nobody to tell."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function, *args)

    async def _main(self, main: Callable[[], Awaitable[None]]) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._calls = nursery
                try:
                    await main()
                finally:
                    self._calls = None
                # The engine went with the lifespan; a request that is still open ends here.
                nursery.cancel_scope.cancel()

    def _start_in_trio(
        self, app: Callable[[], Awaitable[None]], bridge: "_Bridge", over: "asyncio.Future[None]"
    ) -> None:
        if self._calls is None:
            over.set_exception(RuntimeError("the lifespan has ended"))
        else:
            self._calls.start_soon(self._call_in_trio, app, bridge, over)

    async def _call_in_trio(
        self, app: Callable[[], Awaitable[None]], bridge: "_Bridge", over: "asyncio.Future[None]"
    ) -> None:
        try:
            with bridge.cancel_scope:
                await app()
        except* Exception as group:  # a failed request is the server's to report; others go on
            over.set_exception(group.exceptions[0] if len(group.exceptions) == 1 else group)
        finally:
            if not over.done():
                over.set_result(None)


@define(eq=False)
class _Bridge:
    """One call's way back to the server. All methods belong to the Trio side."""

    run: _GuestRun
    cancel_scope: trio.CancelScope
    _receive: ASGIReceiveCallable
    _send: ASGISendCallable

    async def receive(self) -> ASGIReceiveEvent:
        return await self.cross(self._receive)

    async def send(self, message: ASGISendEvent) -> None:
        await self.cross(partial(self._send, message))

    async def cross(self, function: Callable[[], Awaitable[T]]) -> T:
        """What the server's async function returns or raises, run as an asyncio task.

        A cancellation cancels that task and waits for it. If the task had its result by then, the
        result stands, and no message is lost; the cancellation comes at the next checkpoint.
        """
        run = self.run
        task = run.loop.create_task(_as_coroutine(function), context=run.context.copy())
        waiter = trio.lowlevel.current_task()
        task.add_done_callback(lambda _: run.enter(trio.lowlevel.reschedule, waiter))

        def abort(_: Callable[[], Any]) -> trio.lowlevel.Abort:
            task.cancel()
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if task.cancelled():
            await trio.lowlevel.checkpoint_if_cancelled()
            # Not by us, so by the loop on its way out: that ends this call like a cancellation.
            self.cancel_scope.cancel()
            await trio.lowlevel.checkpoint_if_cancelled()
        return task.result()


async def _as_coroutine(function: Callable[[], Awaitable[T]]) -> T:
    return await function()


async def _wait_until_over(future: "asyncio.Future[Any]", *, on_cancel: Callable[[], None]) -> None:
    """Waits however often this task is cancelled meanwhile; raises CancelledError afterwards.

    The wait is bounded by what `on_cancel` sets off: the end of a cancelled Trio scope.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        future.exception()  # looked at, or asyncio would log it as forgotten
        raise cancelled
