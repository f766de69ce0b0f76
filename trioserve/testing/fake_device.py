"""`FakeDevice`: a `Device` whose steps finish when the test says so."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import trio
from attrs import define, field

from trioserve.device.base import Step, StepResult, Ticket

T = TypeVar("T")


@define(eq=False)
class FakeTicket:
    """A submitted step and what became of it."""

    step: Step
    done: trio.Event = field(factory=trio.Event)
    result: StepResult | None = None
    error: Exception | None = None


@define(eq=False)
class FakeDevice:
    """Finishes steps in order: on `finish()`, or at once while `is_automatic`.

    A step's work runs when it finishes, not when it is submitted: a page that is reused too early
    is overwritten before the older step has read it, and the fake model's tokens show it.
    """

    max_in_flight: int = 1
    is_automatic: bool = False
    unfinished: deque[FakeTicket] = field(factory=deque)
    num_finished: int = 0
    is_closed: bool = False
    _submitted: trio.Event = field(factory=trio.Event)

    def submit(self, step: Step) -> Ticket:
        """See Device.submit."""
        assert len(self.unfinished) < self.max_in_flight, "too many steps in flight"
        assert not self.is_closed, "a step was submitted to a closed device"
        ticket = FakeTicket(step)
        self.unfinished.append(ticket)
        self._submitted.set()
        self._submitted = trio.Event()
        return ticket

    async def wait(self, ticket: Ticket) -> StepResult:
        """See Device.wait."""
        assert isinstance(ticket, FakeTicket), f"not a ticket of this device: {ticket!r}"
        if self.is_automatic:
            await trio.lowlevel.checkpoint()
            while not ticket.done.is_set():
                self.finish()
        await ticket.done.wait()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.result is not None, "a finished step has a result"
        return ticket.result

    async def run(self, function: Callable[[], T]) -> T:
        """See Device.run."""
        await trio.lowlevel.checkpoint()
        return function()

    def close(self) -> None:
        """See Device.close."""
        assert not self.unfinished, "the device was closed with a step in flight"
        self.is_closed = True

    def finish(self, error: Exception | None = None) -> None:
        """Finish the oldest unfinished step, with its own result or with `error`."""
        ticket = self.unfinished.popleft()
        self.num_finished += 1
        try:
            if error is not None:
                raise error
            ticket.step.launch()
            ticket.result = ticket.step.result()
        except Exception as raised:
            ticket.error = raised
        ticket.done.set()

    async def wait_submitted(self) -> None:
        """Wait until a step is unfinished. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self.unfinished:
            await self._submitted.wait()
