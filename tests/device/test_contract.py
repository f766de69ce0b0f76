"""The `Device` contract, on every implementation that runs here."""

import threading

import pytest
import trio
from attrs import define

from trioserve.device.base import Device, StepResult
from trioserve.device.cpu import CpuDevice
from trioserve.testing.fake_device import FakeDevice


@define
class NumberedStep:
    number: int
    launched: list[int]
    error: Exception | None = None
    gate: threading.Event | None = None
    thread: threading.Thread | None = None

    def launch(self) -> None:
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.thread = threading.current_thread()
        self.launched.append(self.number)

    def result(self) -> StepResult:
        return StepResult((self.number,))


@pytest.fixture(params=["cpu", "fake1", "fake2"])
def device(request: pytest.FixtureRequest) -> Device:
    if request.param == "cpu":
        return CpuDevice()
    return FakeDevice(max_in_flight=int(request.param[-1]), is_automatic=True)


async def test_steps_run_in_the_order_of_submission(device: Device) -> None:
    launched: list[int] = []
    tickets = []
    for number in range(20):
        if len(tickets) == device.max_in_flight:
            assert (await device.wait(tickets.pop(0))).token_ids == (number - device.max_in_flight,)
        tickets.append(device.submit(NumberedStep(number, launched)))
    for ticket in tickets:
        await device.wait(ticket)
    assert launched == list(range(20))
    device.close()


async def test_what_a_step_raises_is_raised_by_wait_and_the_next_step_runs(device: Device) -> None:
    with pytest.raises(RuntimeError, match="no luck"):
        await device.wait(device.submit(NumberedStep(1, [], RuntimeError("no luck"))))
    assert (await device.wait(device.submit(NumberedStep(2, [])))).token_ids == (2,)
    device.close()


async def test_setup_work_runs_and_its_error_is_raised(device: Device) -> None:
    assert await device.run(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await device.run(lambda: 1 / 0)
    device.close()
    device.close()


async def test_cpu_steps_share_one_thread_that_is_not_the_loops() -> None:
    device = CpuDevice()
    steps = [NumberedStep(number, []) for number in range(3)]
    for step in steps:
        await device.wait(device.submit(step))
    threads = {step.thread for step in steps}
    assert len(threads) == 1
    assert threading.current_thread() not in threads
    device.close()


async def test_the_loop_goes_on_while_a_cpu_step_runs() -> None:
    device = CpuDevice()
    gate = threading.Event()
    ticket = device.submit(NumberedStep(1, [], gate=gate))
    with trio.move_on_after(5) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(device.wait, ticket)
            await trio.lowlevel.checkpoint()
            gate.set()  # only reached because the loop is free
    assert not scope.cancelled_caught
    device.close()


def test_a_step_that_outlives_the_run_is_no_error() -> None:
    gate = threading.Event()
    devices: list[CpuDevice] = []

    async def leave_early() -> None:
        device = CpuDevice()
        devices.append(device)
        device.submit(NumberedStep(1, [], gate=gate))
        await trio.lowlevel.checkpoint()

    trio.run(leave_early)
    gate.set()  # the thread reports into a run that is over
    devices[0]._thread.join(5)
    assert not devices[0]._thread.is_alive()
