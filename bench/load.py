"""The closed loop: clients that each ask, read the answer to its end or leave, and ask again."""

import random
from collections.abc import Iterator, Mapping
from enum import StrEnum

import orjson
import trio
from attrs import define, field, frozen

from bench.prompts import PromptMaker, measure_rate
from bench.wire import Connection, EventLines, Target, WireError, fetch


class Outcome(StrEnum):
    """How a request ended, seen from the client."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Endpoint(StrEnum):
    """Which of the two generation endpoints is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """The path under the server's prefix."""
        return "/v1/chat/completions" if self is Endpoint.CHAT else "/v1/completions"


@frozen
class Shape:
    """What one request asks for; together with a seed it fixes every byte that is sent."""

    model: str
    endpoint: Endpoint
    output_tokens: int
    temperature: float = 0.0
    is_eos_ignored: bool = True
    more: Mapping[str, object] = field(factory=dict)
    """Further fields of each request."""

    def body(
        self, prompt: str, *, is_streamed: bool = True, max_tokens: int | None = None
    ) -> bytes:
        """The request's JSON."""
        asked: dict[str, object] = {
            "model": self.model,
            "max_tokens": max_tokens or self.output_tokens,
            "temperature": self.temperature,
            "stream": is_streamed,
        }
        if is_streamed:
            asked["stream_options"] = {"include_usage": True}
        if self.is_eos_ignored:
            asked["ignore_eos"] = True
        if self.endpoint is Endpoint.CHAT:
            asked["messages"] = [{"role": "user", "content": prompt}]
        else:
            asked["prompt"] = prompt
        asked |= self.more
        return orjson.dumps(asked)


@define(eq=False)
class Record:
    """One request as the client saw it; times are Trio's clock, in seconds."""

    sent_at: float
    outcome: Outcome = Outcome.FAILED
    ended_at: float = 0.0
    text_times: list[float] = field(factory=list)
    """When each event that carries text arrived; an event may carry several tokens."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """From the server's usage; None when it sent none."""
    error: str | None = None

    @property
    def num_output_tokens(self) -> int:
        """Tokens received; a server that tells no usage is taken to send one an event."""
        if self.completion_tokens is not None:
            return self.completion_tokens
        return len(self.text_times)


@define(eq=False)
class AnswerReader:
    """Reads one streamed answer into a record. `leave` is cancelled after `leave_after` texts."""

    _record: Record
    _leave: trio.CancelScope
    _leave_after: int | None = None
    _lines: EventLines = field(factory=EventLines)
    _refusal: bytes = b""

    def feed(self, data: bytes) -> None:
        """Takes the next piece of the body."""
        if not self._record.text_times and len(self._refusal) < 2000:
            self._refusal += data
        for payload in self._lines.feed(data):
            if payload != b"[DONE]":
                self._take(orjson.loads(payload))

    def _take(self, event: dict[str, object]) -> None:
        if "error" in event:
            self._record.error = str(event["error"])
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._record.prompt_tokens = usage["prompt_tokens"]
            self._record.completion_tokens = usage["completion_tokens"]
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not _text_of(choices[0]):
            return
        self._record.text_times.append(trio.current_time())
        if self._leave_after is not None and len(self._record.text_times) >= self._leave_after:
            self._leave.cancel()

    @property
    def refusal(self) -> str:
        """The beginning of a body that held no text, for the error report."""
        return self._refusal[:300].decode(errors="replace")


def _text_of(choice: dict[str, object]) -> object:
    delta = choice.get("delta")
    return delta.get("content") if isinstance(delta, dict) else choice.get("text")


@define(eq=False)
class Load:
    """A closed loop of `num_clients` clients.

    `numbers` deals out the requests: each number is one request, and the loop ends when there are
    none left. With `cancel_fraction`, that part of the requests, chosen by the seed, is left after
    a number of texts that is drawn evenly from 0 to the output length; 0 means as soon as the
    request is written. `records` fills as requests end, in the order of their ends.
    """

    target: Target
    shape: Shape
    prompts: PromptMaker
    num_clients: int
    numbers: Iterator[int]
    seed: int
    cancel_fraction: float = 0.0
    records: list[Record] = field(factory=list)

    async def run(self) -> None:
        """Returns when every client has ended its last request."""
        async with trio.open_nursery() as nursery:
            for _ in range(self.num_clients):
                nursery.start_soon(self._run_client)

    async def _run_client(self) -> None:
        connection: Connection | None = None
        try:
            for number in self.numbers:
                body = self.shape.body(self.prompts.make(number))
                connection = await self._ask(connection, body, self._leave_after(number))
        finally:
            if connection is not None:
                await connection.drop()

    def _leave_after(self, number: int) -> int | None:
        rng = random.Random(f"cancel {self.seed} {number}")
        if rng.random() >= self.cancel_fraction:
            return None
        return rng.randrange(self.shape.output_tokens)

    async def _ask(
        self, connection: Connection | None, body: bytes, leave_after: int | None
    ) -> Connection | None:
        """One request; returns the connection if it can carry another one."""
        record = Record(trio.current_time())
        leave = trio.CancelScope()
        answer = AnswerReader(record, leave, leave_after)
        status = 0
        try:
            if connection is None:
                connection = await Connection.open(self.target)
            record.sent_at = trio.current_time()
            with leave:
                await connection.send("POST", self.shape.endpoint.path, body)
                if leave_after == 0:
                    leave.cancel()
                status = await connection.receive(answer.feed)
            if leave.cancelled_caught:
                record.outcome = Outcome.CANCELLED
            elif status == 200 and record.error is None:
                record.outcome = Outcome.COMPLETED
            else:
                record.error = record.error or f"{status}: {answer.refusal}"
        except (WireError, orjson.JSONDecodeError) as error:
            record.error = str(error)
        record.ended_at = trio.current_time()
        self.records.append(record)
        if connection is not None and not (
            record.outcome is Outcome.COMPLETED and connection.is_reusable
        ):
            await connection.drop()
            return None
        return connection


async def first_model(target: Target) -> str:
    """The name of the first model that the server lists."""
    listed = orjson.loads(await fetch(target, "GET", "/v1/models"))
    return str(listed["data"][0]["id"])


async def make_prompts(
    target: Target, shape: Shape, *, num_tokens: int, num_shared_tokens: int, seed: int
) -> PromptMaker:
    """Learns how the server counts, with two short requests, and makes prompts to measure."""

    async def count(prompt: str) -> int:
        body = shape.body(prompt, is_streamed=False, max_tokens=1)
        answer = orjson.loads(await fetch(target, "POST", shape.endpoint.path, body))
        return int(answer["usage"]["prompt_tokens"])

    return PromptMaker(await measure_rate(count, seed), num_tokens, num_shared_tokens, seed)
