"""`Driver`: the one task that steps a device: plan, launch, wait, commit, retire.

Up to `device.max_in_flight` steps are launched before the oldest is waited for, so a device that
overlaps never idles between two steps:

    depth 1   plan 1  launch 1  wait 1  commit 1  retire 1  plan 2 …
    depth 2   plan 1  launch 1  plan 2  launch 2  wait 1  commit 1  retire 1  plan 3 …

Step 2 is planned before step 1's tokens are known; the device hands them over. If step 1 ends a
sequence, its row in step 2 was in vain and is dropped by the epoch check in commit.

A device may have several batches, one for each model. Those that have work take turns, so that
neither waits for more than one step of each other.
"""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol, TypeVar

import structlog
import trio
from attrs import define, field, frozen

from trioserve.core import StepNumber
from trioserve.device.base import Device, Step, StepResult, Ticket
from trioserve.errors import EngineDead

log = structlog.get_logger("trioserve")

STEP_WATCHDOG_S = 300.0
"""A step that takes longer has hung. The longest real step is a prefill chunk of a few seconds."""


class Plan(Protocol):
    """One step of a batch."""

    @property
    def number(self) -> StepNumber:
        """Each batch counts its own."""


P = TypeVar("P", bound=Plan)
P_contra = TypeVar("P_contra", bound=Plan, contravariant=True)


class PlanRunner(Protocol[P_contra]):
    """What makes device work of plans."""

    def stage(self, plan: P_contra, /) -> Step:
        """Prepare the plan's inputs. Quick, and not a checkpoint."""


class PlannedModel(Protocol[P_contra]):
    """The model of a batch."""

    @property
    def runner(self) -> PlanRunner[P_contra]:
        """Stages what the batch plans."""


class DrivenBatch(Protocol[P]):
    """The serving state of one model, as the driver sees it: `Batch` and `EmbeddingBatch`.

    No method is a checkpoint.
    """

    @property
    def model(self) -> PlannedModel[P]:
        """The model whose steps these are."""

    @property
    def is_idle(self) -> bool:
        """Nothing running, waiting or in flight."""

    def plan(self) -> P | None:
        """The next step, or None if there is nothing to compute now. Must be launched."""

    def commit(self, plan: P, result: StepResult, /) -> None:
        """Take in what the step computed. Comes before `retire`."""

    def retire(self, plan: P, /) -> None:
        """The device is done with the step."""

    def abort_expired(self) -> float:
        """Abort requests past their deadline, and return the next deadline that comes up."""

    def check(self) -> None:
        """Assert that the books agree."""


@frozen
class _InFlight:
    batch: DrivenBatch[Any]
    plan: Plan
    ticket: Ticket


@define(eq=False)
class Driver:
    """Owned by the engine's nursery; `wake` is called by whoever gives it work or credit."""

    batches: Sequence[DrivenBatch[Any]]
    device: Device
    check_after_steps: bool = False
    """Assert the whole census after every step: for tests."""
    waiting_since: float | None = field(init=False, default=None)
    """Trio time since which the oldest step in flight is waited for; None between steps."""
    _work: trio.Event = field(init=False, factory=trio.Event)
    _in_flight: deque[_InFlight] = field(init=False, factory=deque)
    _turns: deque[DrivenBatch[Any]] = field(init=False)
    """The batches, the one that was stepped last at the end."""

    def __attrs_post_init__(self) -> None:
        self._turns = deque(self.batches)

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
                next_deadline = min((batch.abort_expired() for batch in self.batches), default=inf)
                self._launch_steps()
                if self._in_flight:
                    await self._finish_oldest()
                else:
                    # Nothing is in flight, so every page that will come free is free, and only a
                    # new request, a taken token or an abort can make a plan possible. A deadline
                    # makes an abort.
                    for batch in self.batches:
                        if batch.is_idle:
                            batch.check()
                    with trio.move_on_at(next_deadline):
                        await self._work.wait()
        finally:
            # Not a cleanup that could be cancelled half-way: the wait inside is shielded, because
            # pages must not be given back while the device still writes to them.
            while self._in_flight:
                await self._discard_oldest()

    def _launch_steps(self) -> None:
        while len(self._in_flight) < self.device.max_in_flight:
            if not any(self._launch(batch) for batch in tuple(self._turns)):
                return

    def _launch(self, batch: DrivenBatch[P]) -> bool:
        """Launch the batch's next step, if it has one."""
        plan = batch.plan()
        if plan is None:
            return False
        ticket = self.device.submit(batch.model.runner.stage(plan))
        self._in_flight.append(_InFlight(batch, plan, ticket))
        self._turns.remove(batch)
        self._turns.append(batch)
        return True

    async def _finish_oldest(self) -> None:
        oldest = self._in_flight.popleft()
        result = await self._wait_shielded(oldest.ticket)
        oldest.batch.commit(oldest.plan, result)
        # Commit before retire: see Batch.commit.
        oldest.batch.retire(oldest.plan)
        if self.check_after_steps:
            for batch in self.batches:
                batch.check()

    async def _discard_oldest(self) -> None:
        """The driver is leaving: nobody wants the results, but until then pages are in use."""
        oldest = self._in_flight.popleft()
        try:
            await self._wait_shielded(oldest.ticket)
        except Exception:
            # What ends the driver is being raised already and must not be replaced.
            log.exception("a step failed while the driver was leaving", step=oldest.plan.number)
        oldest.batch.retire(oldest.plan)

    async def _wait_shielded(self, ticket: Ticket) -> StepResult:
        # The only shield in the engine. Bounded by the watchdog; one step long in practice.
        self.waiting_since = trio.current_time()
        with trio.move_on_after(STEP_WATCHDOG_S) as watchdog:
            watchdog.shield = True
            result = await self.device.wait(ticket)
            self.waiting_since = None
            return result
        raise EngineDead(f"a step did not finish within {STEP_WATCHDOG_S:.0f} s")
