"""An app for tests inside one Trio run: it traces what becomes of its requests."""

from collections.abc import AsyncIterator

import trio
from quart import Response

from trioserve.api.connection import ScopedApp, open_request, request_stack


class TracedApp(ScopedApp):
    """Streams `num_events` events, one a second; traces what happens to the request."""

    def __init__(self, num_events: int = 3, event: bytes = b"data: x\n\n") -> None:
        super().__init__("traced")
        self.trace: list[str] = []
        self.num_events = num_events
        self.event = event
        self.add_url_rule("/", view_func=self.stream)
        self.add_url_rule("/silent", view_func=self.silent)
        self.add_url_rule("/broken", view_func=self.broken)
        self.add_url_rule("/now", view_func=self.now)

    def open(self) -> None:
        self.trace.append("opened")
        request_stack().callback(self.trace.append, "ended")
        open_request().on_end = lambda reason: self.trace.append(f"aborted: {reason}")

    async def stream(self) -> Response:
        self.open()

        async def body() -> AsyncIterator[bytes]:
            self.trace.append("body")
            for _ in range(self.num_events):
                await trio.sleep(1)
                yield self.event

        return Response(body(), content_type="text/event-stream")

    async def silent(self) -> str:
        self.open()
        await trio.sleep_forever()
        raise AssertionError

    async def broken(self) -> str:
        self.open()
        raise ValueError("broken")

    async def now(self) -> str:
        self.open()
        return "now"
