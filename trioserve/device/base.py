"""The contract between the driver, the device and whatever turns a plan into device work."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from trioserve.core import TokenLogprobs

T = TypeVar("T")


@frozen
class RowFailure:
    """One row of a step failed (for example non-finite logits); only its request ends."""

    row: int
    message: str


@frozen(eq=False)
class RowReadout:
    """What was read for one row, where its sequence asks for it (`ReadoutParams`)."""

    prompt: tuple[TokenLogprobs, ...] = ()
    """Of the row's prompt targets, in order."""
    sampled: TokenLogprobs | None = None
    """Of the token drawn."""
    vector: npt.NDArray[np.float32] | None = None
    """[hidden size]: the state that the token was drawn from, or an embedding."""


@frozen
class StepResult:
    """What a step computed: per plan row the sampled token id, or None where none was drawn."""

    token_ids: tuple[int | None, ...]
    failures: tuple[RowFailure, ...] = ()
    readouts: Mapping[int, RowReadout] = field(factory=dict)
    """By plan row; only rows that asked for something are in it."""


class Step(Protocol):
    """Device work made by a runner from one plan. Both methods run off the event loop.

    Steps are launched in the order in which they were submitted, and step n+1 may be launched
    before the result of step n was read: a runner hands sampled tokens over on the device.
    """

    def launch(self) -> None:
        """Run the work (CPU) or enqueue it (CUDA)."""

    def result(self) -> StepResult:
        """The sampled tokens; called once, after the work has completed."""


class Ticket(Protocol):
    """Names one submitted step; what `Device.submit` returns and `Device.wait` takes."""


class Device(Protocol):
    """Runs steps in order. One driver task calls it; no method but `submit` may be concurrent."""

    max_in_flight: int
    """Most steps that may be submitted and not yet waited for: 1, or 2 where they overlap."""

    def submit(self, step: Step) -> Ticket:
        """Queue the step. Not a checkpoint. At most `max_in_flight` may be unfinished."""

    async def wait(self, ticket: Ticket) -> StepResult:
        """Wait for the step, oldest first. A checkpoint. Raises what the step raised."""

    async def run(self, function: Callable[[], T]) -> T:
        """Run set-up work (loading a model) where steps run. A checkpoint.

        Cancelling ends the waiting, not the work, which must not touch pages.
        """

    def close(self) -> None:
        """Give the device back once nothing is in flight. Idempotent, not a checkpoint."""
