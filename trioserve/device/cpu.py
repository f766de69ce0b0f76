"""`CpuDevice`: steps run in one long-lived thread of our own."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import outcome
import trio
from attrs import define, field
from outcome import Outcome

from trioserve.device.base import Step, StepResult, Ticket

T = TypeVar("T")


@define(eq=False)
class CpuTicket:
    """One piece of work handed to the thread, and its outcome once done."""

    work: Callable[[], Any]
    token: trio.lowlevel.TrioToken
    done: trio.Event = field(factory=trio.Event)
    result: "Outcome[Any] | None" = None

    def complete(self, result: "Outcome[Any]") -> None:
        """Called on the Trio thread."""
        self.result = result
        self.done.set()


class CpuDevice:
    """Runs steps one after another in a thread that lives as long as the device.

    Not `trio.to_thread`, whose threads change from call to call: OpenMP teams and torch's
    inference mode belong to a thread. The thread is a daemon: a step that hangs must not keep the
    process from exiting after its watchdog gave up on it.
    """

    max_in_flight = 1

    def __init__(self) -> None:
        self._work: SimpleQueue[CpuTicket | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="trioserve-step", daemon=True)
        self._is_closed = False
        self._thread.start()

    def submit(self, step: Step) -> Ticket:
        """See Device.submit."""

        def run_step() -> StepResult:
            step.launch()
            return step.result()

        return self._submit(run_step)

    async def wait(self, ticket: Ticket) -> StepResult:
        """See Device.wait."""
        assert isinstance(ticket, CpuTicket), f"not a ticket of this device: {ticket!r}"
        result = await self._wait(ticket)
        assert isinstance(result, StepResult), f"a step returned {result!r}"
        return result

    async def run(self, function: Callable[[], T]) -> T:
        """See Device.run."""
        result: T = await self._wait(self._submit(function))
        return result

    def close(self) -> None:
        """See Device.close. Does not join: the thread ends by itself after what it is doing."""
        if not self._is_closed:
            self._is_closed = True
            self._work.put(None)

    def _submit(self, work: Callable[[], Any]) -> CpuTicket:
        assert not self._is_closed, "work was submitted to a closed device"
        ticket = CpuTicket(work, trio.lowlevel.current_trio_token())
        self._work.put(ticket)
        return ticket

    async def _wait(self, ticket: CpuTicket) -> Any:
        await ticket.done.wait()
        assert ticket.result is not None, "done without an outcome"
        return ticket.result.unwrap()

    def _serve(self) -> None:
        while (ticket := self._work.get()) is not None:
            result = outcome.capture(ticket.work)
            try:
                ticket.token.run_sync_soon(ticket.complete, result)
            except trio.RunFinishedError:
                return  # the run ended while we computed; nobody is left to tell
            # Do not keep the last result, or a failed step's frames, alive while idle.
            del ticket, result
