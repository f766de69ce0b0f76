"""`RequestStream`: the bounded, conflating stream between the driver and one request's task."""

from collections.abc import Callable

import trio
from attrs import define, field

from trioserve.core import NOTHING_CACHED, CachedTokens
from trioserve.engine.choice import Choice
from trioserve.engine.request import Delta, GenerateRequest
from trioserve.errors import TrioserveError


@define(eq=False)
class RequestStream:
    """All choices of one request. Made by `Engine.open_stream`; read by the request's own task.

    The driver never waits for a reader: what has piled up since the last `receive` comes out as
    one delta a choice, and a choice that is as far ahead as it may be is not scheduled.
    """

    request: GenerateRequest
    deadline: float
    """Trio time at which the request is aborted; infinite without a request timeout."""
    on_taken: Callable[[], None]
    """Tells the driver that there is credit again."""
    on_deadline: Callable[["RequestStream"], None]
    opened_at: float
    choices: tuple[Choice, ...] = field(init=False, default=())
    is_closed: bool = field(init=False, default=False)
    is_cut_short: bool = field(init=False, default=False)
    """Whether a choice was aborted."""
    error: TrioserveError | None = field(init=False, default=None)
    _started: trio.Event = field(init=False, factory=trio.Event)
    _news: trio.Event = field(init=False, factory=trio.Event)
    _notified: set[Choice] = field(init=False, factory=set)
    """Those that may have news: looking at a quarter of a million after each step takes too long.
    """

    @property
    def num_prompt_tokens(self) -> int:
        """Each prompt counted once, whatever the number of samples."""
        return sum(len(generation.prompt_ids) for generation in self.request.generations)

    def cached_tokens(self, generation_index: int) -> CachedTokens:
        """What the first sample of a prompt took from the cache; nothing before it was begun."""
        first = self.choices[generation_index * self.request.num_samples]
        return first.sequence.cached or NOTHING_CACHED

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far, over all choices."""
        return sum(choice.num_tokens for choice in self.choices)

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.finish is not None for choice in self.choices)

    @property
    def is_started(self) -> bool:
        """Whether a step has included one of the choices."""
        return self._started.is_set()

    async def wait_started(self) -> None:
        """Wait until the first choice is in a step, or the request has failed. A checkpoint."""
        with trio.move_on_at(self.deadline) as deadline:
            await self._started.wait()
        if deadline.cancelled_caught:
            self.on_deadline(self)
        if self.error is not None:
            raise self.error

    async def receive(self) -> tuple[Delta, ...]:
        """What the choices produced since the last call; waits for the first news. A checkpoint.

        Raises RequestFailed, RequestError or EngineDead as soon as the request has failed: what was
        not taken by then belongs to an answer that will not be completed. Must not be called after
        every choice's finish was taken.
        """
        with trio.move_on_at(self.deadline) as deadline:
            await self._wait_news()
        if deadline.cancelled_caught:
            self.on_deadline(self)
        if self.error is not None:
            raise self.error
        notified = sorted(self._notified, key=lambda choice: choice.index)
        self._notified.clear()
        deltas = tuple(choice.take() for choice in notified if choice.has_news)
        self.on_taken()
        return deltas

    def notify(self, choice: Choice) -> None:
        """Wake the reader: the choice has news. Not a checkpoint."""
        self._notified.add(choice)
        self._news.set()

    def mark_started(self) -> None:
        """A step includes one of the choices now. Not a checkpoint."""
        self._started.set()

    def fail(self, error: TrioserveError) -> None:
        """End the stream with an error. Not a checkpoint."""
        self.error = error
        self._started.set()
        self._news.set()

    async def _wait_news(self) -> None:
        await trio.lowlevel.checkpoint()
        while self.error is None and not any(choice.has_news for choice in self._notified):
            self._news = trio.Event()
            await self._news.wait()
