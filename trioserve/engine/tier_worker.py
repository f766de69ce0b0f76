"""`TierWorker`: the tasks that serve loads and write behind, each with one thread at a time."""

from collections.abc import Awaitable, Callable

import trio
from attrs import define, field

from trioserve.engine.cache_tiers import CacheTiers
from trioserve.scheduler.loads import PageLoad

LAST_WRITES_S = 2.0
"""How long the end may take for what is still to be written."""


@define(eq=False)
class TierWorker:
    """Lives in the engine's nursery, beside the driver.

    A load and a write may run at the same time; the tiers have locks of their own. A thread is
    always waited for, also when cancelled: it writes into pages. It has at most a few milliseconds
    to go, unless the disk hangs.
    """

    tiers: CacheTiers
    wake_driver: Callable[[], None]
    """A load that is over gives pages and lets a sequence go on."""
    _work: trio.Event = field(init=False, factory=trio.Event)
    _unwritten: trio.Event = field(init=False, factory=trio.Event)
    _writing: trio.Lock = field(init=False, factory=trio.Lock)

    def __attrs_post_init__(self) -> None:
        self.tiers.on_work = self.wake

    def wake(self) -> None:
        """There is a load or something to write. Not a checkpoint."""
        self._work.set()
        self._unwritten.set()

    async def forget(self) -> None:
        """Empty the tiers. A checkpoint; a load meanwhile finds nothing, which is no error."""
        # What is being written would else be written into the empty tier.
        async with self._writing:
            self.tiers.drop_unwritten()
            await trio.to_thread.run_sync(self.tiers.clear)

    async def run(self) -> None:
        """Serve until cancelled; then write what is left, for a while, and let the storage go."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve_loads)
                nursery.start_soon(self._write_behind)
        finally:
            while self.tiers.loads:
                self.tiers.end_load(self.tiers.loads.popleft())
            with trio.CancelScope(shield=True):
                await self._close()

    async def _serve_loads(self) -> None:
        while True:
            self._work = trio.Event()
            while self.tiers.loads:
                await self._serve(self.tiers.loads.popleft())
            await self._work.wait()

    async def _serve(self, load: PageLoad) -> None:
        try:
            may_go_on = True
            while may_go_on and (batch := self.tiers.take_batch(load)) is not None:
                filled = await trio.to_thread.run_sync(self.tiers.fill, batch)
                may_go_on = self.tiers.finish_batch(batch, filled)
        finally:
            self.tiers.end_load(load)
            self.wake_driver()

    async def _write_behind(self) -> None:
        while True:
            self._unwritten = trio.Event()
            while await self._write_some():
                pass
            await self._unwritten.wait()

    async def _write_some(self) -> bool:
        """Write what comes next; False if there is nothing."""
        async with self._writing:
            pages = self.tiers.take_unwritten()
            if pages:
                # What was taken must not be lost: others are of no use without it.
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self.tiers.write, pages)
                self.tiers.note_written(pages)
        return bool(pages)

    async def _close(self) -> None:
        storage = self.tiers.storage
        if storage is None:
            return
        with trio.move_on_after(LAST_WRITES_S):
            while await self._write_some():
                pass
        await trio.to_thread.run_sync(storage.close)


async def run_beside(
    worker: TierWorker | None,
    run: Callable[[], Awaitable[None]],
    *,
    on_failure: Callable[[Exception], None],
) -> None:
    """Run the driver and, as long as that runs, the worker, if there is one.

    Raises what either of them raised; `on_failure` hears of the driver's first, since what the
    worker has left to write may take a while.
    """
    if worker is None:
        await run()
        return
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            try:
                await run()
            except Exception as error:
                on_failure(error)
                raise
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
