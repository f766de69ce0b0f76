"""What the engine's tests share: requests over bytes, readers, and what a test holds."""

from collections.abc import Awaitable
from typing import Any, Protocol

from attrs import define

from trioserve.core import (
    READ_NOTHING,
    SHARED,
    CacheNamespace,
    ReadoutParams,
    SamplingParams,
    StopParams,
)
from trioserve.engine.engine import Engine
from trioserve.engine.request import Delta, GenerateRequest, Generation
from trioserve.engine.stream import RequestStream
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_model import FakeRunner, continuation


def request(
    prompt: bytes | list[bytes],
    max_tokens: int = 8,
    *,
    num_samples: int = 1,
    timeout_s: float | None = None,
    stop: tuple[str, ...] | StopParams = (),
    readout: ReadoutParams = READ_NOTHING,
    request_id: str = "test",
    handles: tuple[str, ...] = (),
    namespace: CacheNamespace | None = SHARED,
) -> GenerateRequest:
    """A request whose token ids are bytes; a tuple of stops is one of strings."""
    prompts = prompt if isinstance(prompt, list) else [prompt]
    stop = stop if isinstance(stop, StopParams) else StopParams(strings=stop)
    return GenerateRequest(
        request_id=request_id,
        generations=tuple(
            Generation(
                tuple(text),
                max_tokens,
                SamplingParams(temperature=0.0),
                stop,
                readout,
                namespace=namespace,
            )
            for text in prompts
        ),
        num_samples=num_samples,
        timeout_s=timeout_s,
        handles=handles,
    )


def expected(prompt: bytes, num_tokens: int, sample_index: int = 0) -> str:
    """What the fake model says to `prompt` when nothing disturbs it."""
    return bytes(continuation(tuple(prompt), num_tokens, sample_index)).decode()


async def read_all(stream: RequestStream) -> list[str]:
    """The whole text of each choice, read to its finish."""
    texts = ["" for _ in stream.choices]
    num_open = len(texts)
    while num_open:
        for delta in await stream.receive():
            texts[delta.index] += delta.text
            num_open -= delta.finish is not None
    return texts


async def read_deltas(stream: RequestStream) -> list[list[Delta]]:
    """What each choice gave its reader, piece by piece, read to its finish."""
    deltas: list[list[Delta]] = [[] for _ in stream.choices]
    num_open = len(deltas)
    while num_open:
        for delta in await stream.receive():
            deltas[delta.index].append(delta)
            num_open -= delta.finish is not None
    return deltas


@define
class Bench:
    """An engine over fakes, running in the test's nursery."""

    engine: Engine
    device: FakeDevice
    runner: FakeRunner

    async def finish_step(self) -> None:
        """Let the oldest step finish and the driver do what follows from it."""
        import trio.testing

        await self.device.wait_submitted()
        self.device.finish()
        await trio.testing.wait_all_tasks_blocked()

    def finish_all(self) -> None:
        """Let steps finish by themselves from now on."""
        self.device.is_automatic = True
        while self.device.unfinished:
            self.device.finish()

    def check_idle(self) -> None:
        """Every page is free, or cached without a user, and nothing else is remembered."""
        batch = self.engine.batch
        batch.check()
        census = batch.pool.statistics()
        assert census.free + census.cached == census.total, census
        assert batch.scheduler.tree.num_unused == census.cached
        assert batch.is_idle
        assert batch.scheduler.num_running == 0
        assert batch.scheduler.num_waiting == 0
        assert not batch.streams
        assert not len(batch.handles)


class StartBench(Protocol):
    """Keyword arguments: the sizes of the fakes, then any setting of the server."""

    def __call__(self, **settings: Any) -> Awaitable[Bench]: ...
