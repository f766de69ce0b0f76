"""`Driver`: the one task that steps a device: plan, launch, wait, commit, retire.

Up to `device.max_in_flight` steps are launched before the oldest is waited for, so a device that
overlaps never idles between two steps:

    depth 1   plan 1  launch 1  wait 1  commit 1  retire 1  plan 2 …
    depth 2   plan 1  launch 1  plan 2  launch 2  wait 1  commit 1  retire 1  plan 3 …

Step 2 is planned before step 1's tokens are known; the device hands them over. If step 1 ends a
sequence, its row in step 2 was in vain and is dropped by the epoch check in commit.
"""

from collections import deque

import structlog
import trio
from attrs import define, field, frozen

from trioserve.device.base import Device, StepResult, Ticket
from trioserve.engine.batch import Batch
from trioserve.errors import EngineDead
from trioserve.scheduler.plan import StepPlan

log = structlog.get_logger("trioserve")

STEP_WATCHDOG_S = 300.0
"""A step that takes longer has hung. The longest real step is a prefill chunk of a few seconds."""


@frozen
class _InFlight:
    plan: StepPlan
    ticket: Ticket


@define(eq=False)
class Driver:
    """Owned by the engine's nursery; `wake` is called by whoever gives it work or credit."""

    batch: Batch
    device: Device
    check_after_steps: bool = False
    """Assert the whole census after every step: for tests."""
    waiting_since: float | None = field(init=False, default=None)
    """Trio time since which the oldest step in flight is waited for; None between steps."""
    _work: trio.Event = field(init=False, factory=trio.Event)
    _in_flight: deque[_InFlight] = field(init=False, factory=deque)

    def wake(self) -> None:
        """There may be something to plan. Not a checkpoint."""
        self._work.set()

    async def run(self) -> None:
        """Step until cancelled. Whatever ends it, no step is in flight when it returns."""
        try:
            while True:
                # Cancellation is taken here, between two steps, and not in the middle of one.
                await trio.lowlevel.checkpoint()
                self._work = trio.Event()
                next_deadline = self.batch.abort_expired()
                self._launch_steps()
                if self._in_flight:
                    await self._finish_oldest()
                else:
                    # Nothing is in flight, so every page that will come free is free, and only a
                    # new request, a taken token or an abort can make a plan possible. A deadline
                    # makes an abort.
                    if self.batch.is_idle:
                        self.batch.check()
                    with trio.move_on_at(next_deadline):
                        await self._work.wait()
        finally:
            # Not a cleanup that could be cancelled half-way: the wait inside is shielded, because
            # pages must not be given back while the device still writes to them.
            while self._in_flight:
                await self._discard_oldest()

    def _launch_steps(self) -> None:
        while len(self._in_flight) < self.device.max_in_flight:
            plan = self.batch.plan()
            if plan is None:
                return
            step = self.batch.model.runner.stage(plan)
            self._in_flight.append(_InFlight(plan, self.device.submit(step)))

    async def _finish_oldest(self) -> None:
        oldest = self._in_flight.popleft()
        result = await self._wait_shielded(oldest.ticket)
        self.batch.commit(oldest.plan, result)
        # Commit before retire: see Batch.commit.
        self.batch.retire(oldest.plan)
        if self.check_after_steps:
            self.batch.check()

    async def _discard_oldest(self) -> None:
        """The driver is leaving: nobody wants the tokens, but until then the pages are in use."""
        oldest = self._in_flight.popleft()
        try:
            await self._wait_shielded(oldest.ticket)
        except Exception:
            # What ends the driver is being raised already and must not be replaced.
            log.exception("a step failed while the driver was leaving", step=oldest.plan.number)
        self.batch.retire(oldest.plan)

    async def _wait_shielded(self, ticket: Ticket) -> StepResult:
        # The only shield in the engine. Bounded by the watchdog; one step long in practice.
        self.waiting_since = trio.current_time()
        with trio.move_on_after(STEP_WATCHDOG_S) as watchdog:
            watchdog.shield = True
            result = await self.device.wait(ticket)
            self.waiting_since = None
            return result
        raise EngineDead(f"a step did not finish within {STEP_WATCHDOG_S:.0f} s")
