"""A server that speaks enough of the API for the benchmarks, on memory streams and a mock clock.

Its delays are exact on the clock of `autojump_clock`, so what a benchmark works out can be compared
with what it must be.
"""

import contextlib
import math
from collections.abc import AsyncIterator

import h11
import orjson
import pytest
import trio
import trio.testing
from attrs import define, field

BOUNDS_S = (0.001, 0.01, 0.1, math.inf)
BOUNDS_STEPS = (0.0, 1.0, 2.0, math.inf)


@define(eq=False)
class FakeOpenAI:
    """Counts words as tokens; `first_s` to the first token, `gap_s` between tokens."""

    nursery: trio.Nursery
    first_s: float = 0.5
    gap_s: float = 0.1
    has_usage: bool = True
    num_leaked_pages: int = 0
    held_s: float = 0.0
    """How long a request's pages are held after its client left."""
    status: int = 200
    max_slots: int | None = None
    """Requests that run at once; more are refused, after `refusal_s`."""
    refusal_s: float = 0.0
    page_words: int = 0
    """Words in a page of its prefix cache; 0 has none. A cached word takes no time."""
    paths: list[str] = field(factory=list)
    prompts: list[str] = field(factory=list)
    num_connections: int = 0
    num_running: int = 0
    max_running: int = 0
    starts: set[tuple[str, ...]] = field(factory=set)
    """Of prompts that were computed, in whole pages."""
    free_s: list[float] = field(factory=list)
    """One for each request that was left before its end."""

    async def open_tcp_stream(self, host: str, port: int) -> trio.abc.Stream:
        assert (host, port) == ("127.0.0.1", 30000)
        client, server = trio.testing.memory_stream_pair()
        self.num_connections += 1
        self.nursery.start_soon(self._serve, server)
        return client

    async def _serve(self, stream: trio.abc.Stream) -> None:
        connection = h11.Connection(h11.SERVER)
        while (request := await self._read(connection, stream)) is not None:
            path, body = request
            self.paths.append(path)
            if path == "/metrics":
                await self._send(connection, stream, 200, self._metrics().encode())
            elif path == "/v1/models":
                models = {"object": "list", "data": [{"id": "fake"}]}
                await self._send(connection, stream, 200, orjson.dumps(models))
            elif path == "/health":
                await self._send(connection, stream, 200, b'{"status":"ok"}')
            elif self.status != 200:
                await self._send(connection, stream, self.status, b'{"error":{"code":"no"}}')
            elif self.max_slots is not None and self.num_running >= self.max_slots:
                await trio.sleep(self.refusal_s)
                await self._send(connection, stream, 503, b'{"error":{"code":"overloaded"}}')
            elif not await self._generate(connection, stream, path, orjson.loads(body)):
                return
            connection.start_next_cycle()

    async def _read(
        self, connection: h11.Connection, stream: trio.abc.Stream
    ) -> tuple[str, bytes] | None:
        path, body = "", b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                path = event.target.decode()
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return path, body
            else:
                return None

    async def _send(
        self, connection: h11.Connection, stream: trio.abc.Stream, status: int, body: bytes
    ) -> None:
        headers = [("content-length", str(len(body)))]
        parts = [
            connection.send(h11.Response(status_code=status, headers=headers)),
            connection.send(h11.Data(data=body)),
            connection.send(h11.EndOfMessage()),
        ]
        await stream.send_all(b"".join(part for part in parts if part))

    async def _generate(
        self, connection: h11.Connection, stream: trio.abc.Stream, path: str, asked: dict
    ) -> bool:
        """Answers, and returns False if the client left."""
        is_chat = path == "/v1/chat/completions"
        messages = [message["content"] for message in asked["messages"]] if is_chat else []
        prompt = " ".join(messages) if is_chat else asked["prompt"]
        self.prompts.append(prompt)
        has_left = True
        self.num_running += 1
        self.max_running = max(self.max_running, self.num_running)

        async def watch() -> None:
            assert await stream.receive_some(1) == b""
            nursery.cancel_scope.cancel()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                num_prompt = len(prompt.split()) + (7 if is_chat else 0)
                with contextlib.suppress(trio.BrokenResourceError):
                    await self._answer(connection, stream, is_chat, num_prompt, asked)
                    has_left = False
                nursery.cancel_scope.cancel()
        finally:
            if has_left and self.held_s:
                await trio.sleep(self.held_s)
            self.num_running -= 1
        if has_left:
            self.free_s.append(0.005)
        return not has_left

    async def _answer(
        self,
        connection: h11.Connection,
        stream: trio.abc.Stream,
        is_chat: bool,
        num_prompt: int,
        asked: dict,
    ) -> None:
        num_tokens = asked["max_tokens"]
        usage = {"prompt_tokens": num_prompt, "completion_tokens": num_tokens}
        first_s = self.first_s
        if self.page_words:
            num_cached = self._take_cached(self.prompts[-1].split())
            first_s *= 1 - num_cached / num_prompt
            usage["prompt_tokens_details"] = {"cached_tokens": num_cached}
        if not asked["stream"]:
            await trio.sleep(first_s + self.gap_s * (num_tokens - 1))
            await self._send(connection, stream, 200, orjson.dumps({"usage": usage}))
            return
        await stream.send_all(connection.send(h11.Response(status_code=200, headers=[])))

        async def event(choices: list[dict], **more: object) -> None:
            data = b"data: " + orjson.dumps({"choices": choices, **more}) + b"\n\n"
            await stream.send_all(connection.send(h11.Data(data=data)))

        if is_chat:
            await event([{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        await trio.sleep(first_s)
        for number in range(num_tokens):
            if number:
                await trio.sleep(self.gap_s)
            await event([{"delta": {"content": " w"}} if is_chat else {"text": " w"}])
        if self.has_usage:
            await event([], usage=usage)
        end = connection.send(h11.Data(data=b"data: [DONE]\n\n"))
        await stream.send_all(end + connection.send(h11.EndOfMessage()))

    def _take_cached(self, words: list[str]) -> int:
        """How many words an earlier prompt began with too; the prompt is cached from now on."""
        ends = range(self.page_words, len(words), self.page_words)
        starts = [tuple(words[:end]) for end in ends]
        num_pages = next((n for n, s in enumerate(starts) if s not in self.starts), len(starts))
        self.starts.update(starts)
        return num_pages * self.page_words

    def _metrics(self) -> str:
        num = len(self.free_s)
        leased = 3 * self.num_running
        leaked = self.num_leaked_pages if num else 0
        lines = [
            "# TYPE trioserve_pages gauge",
            f'trioserve_pages{{state="free"}} {90 - leased - leaked}',
            f'trioserve_pages{{state="leased"}} {leased}',
            'trioserve_pages{state="cached"} 10',
            'trioserve_pages{state="quarantined"} 0',
            "# TYPE trioserve_num_running_reqs gauge",
            f"trioserve_num_running_reqs {self.num_running}",
            "# TYPE trioserve_num_queue_reqs gauge",
            "trioserve_num_queue_reqs 0",
            "# TYPE trioserve_steps_total counter",
            f"trioserve_steps_total {100 + num}",
            "# TYPE trioserve_aborted_requests_total counter",
            f'trioserve_aborted_requests_total{{reason="disconnect"}} {5 + num}',
            'trioserve_aborted_requests_total{reason="stall"} 2',
            "# TYPE trioserve_wasted_tokens_total counter",
            f"trioserve_wasted_tokens_total {7 + num // 2}",
        ]
        lines += _histogram("trioserve_cancel_to_free_seconds", BOUNDS_S, self.free_s)
        lines += _histogram("trioserve_cancel_to_free_steps", BOUNDS_STEPS, [1.0] * num)
        return "\n".join(lines) + "\n"


def _histogram(name: str, bounds: tuple[float, ...], values: list[float]) -> list[str]:
    # Ten observations from before, all in the lowest bucket: a benchmark has to take them off.
    def count(bound: float) -> int:
        return 10 + sum(value <= bound for value in values)

    def label(bound: float) -> str:
        return "+Inf" if bound == math.inf else str(bound)

    return [
        f"# TYPE {name} histogram",
        *(f'{name}_bucket{{le="{label(bound)}"}} {count(bound)}' for bound in bounds),
        f"{name}_sum {sum(values)}",
        f"{name}_count {10 + len(values)}",
    ]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeOpenAI]:
    async with trio.open_nursery() as nursery:
        fake = FakeOpenAI(nursery)
        monkeypatch.setattr(trio, "open_tcp_stream", fake.open_tcp_stream)
        yield fake
        nursery.cancel_scope.cancel()
