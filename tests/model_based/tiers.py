"""The tiers below the pool, and their worker played by hand, one half of a batch at a time."""

from collections.abc import Sequence
from typing import Any, cast

from attrs import define, field

from trioserve.engine.batch import Batch
from trioserve.engine.cache_tiers import CacheTiers, LoadBatch
from trioserve.scheduler.loads import PageLoad
from trioserve.testing.fake_model import FakeRunner
from trioserve.tiers.host import HostTier
from trioserve.tiers.page_key import KeySpace, PageKey, Payload

BLOCK_BYTES = 4
"""Of one token of the fake model."""


@define(eq=False)
class LossyStorage:
    """A storage tier that has lost some of what it says it has."""

    pages: dict[PageKey, bytes] = field(factory=dict)
    lost: set[PageKey] = field(factory=set)

    def contains_prefix(self, keys: Sequence[PageKey]) -> int:
        return next((n for n, key in enumerate(keys) if key not in self.pages), len(keys))

    def read(self, keys: Sequence[PageKey]) -> list[bytes | None]:
        for key in self.lost:
            self.pages.pop(key, None)
        self.lost.clear()
        return [self.pages.get(key) for key in keys]

    def write(self, items: Sequence[tuple[PageKey, Payload]]) -> int:
        self.pages.update((key, bytes(block)) for key, block in items)
        return len(items)

    def touch(self, keys: Sequence[PageKey]) -> None:
        assert all(isinstance(key, bytes) for key in keys)

    def lose(self, position: int) -> None:
        """One of its pages is damaged, which is found when it is read."""
        if self.pages:
            self.lost.add(sorted(self.pages)[position % len(self.pages)])


@define(eq=False)
class Worker:
    """Plays `TierWorker` over a batch; what it has in hand is being filled."""

    tiers: CacheTiers
    storage: LossyStorage | None
    in_hand: PageLoad | None = None
    filling: LoadBatch | None = None

    @classmethod
    def beside(
        cls, batch: Batch, runner: FakeRunner, *, host_pages: int, has_storage: bool
    ) -> "Worker":
        storage = LossyStorage() if has_storage else None
        page_size = runner.page_size
        batch.tiers = CacheTiers(
            scheduler=batch.scheduler,
            memory=runner,
            keys=KeySpace("fake", runner.dtype, runner.layout, page_size),
            host=HostTier(host_pages * page_size * BLOCK_BYTES) if host_pages else None,
            storage=cast("Any", storage),
        )
        return cls(batch.tiers, storage)

    @property
    def is_busy(self) -> bool:
        return self.in_hand is not None or bool(self.tiers.loads)

    def step(self) -> None:
        """The next thing that the worker does: take pages, or fill and publish them."""
        if self.filling is not None:
            assert self.in_hand is not None
            filled = self.tiers.fill(self.filling)
            may_go_on = self.tiers.finish_batch(self.filling, filled)
            self.filling = None
            if not may_go_on:
                self._end()
        elif self.in_hand is not None or self.tiers.loads:
            self.in_hand = self.in_hand or self.tiers.loads.popleft()
            self.filling = self.tiers.take_batch(self.in_hand)
            if self.filling is None:
                self._end()
        self.write()

    def write(self) -> None:
        while pages := self.tiers.take_unwritten():
            self.tiers.write(pages)
            self.tiers.note_written(pages)

    def _end(self) -> None:
        assert self.in_hand is not None
        self.tiers.end_load(self.in_hand)
        self.in_hand = None
