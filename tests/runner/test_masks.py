"""Masks are filled beside the step, one after the other, and a row that fails fails alone."""

import threading
from typing import Any

import numpy as np
import pytest
from attrs import define, field

from tests.runner.kit import VOCAB, Anything, SuccessorDecoder, plan, row, run
from trioserve.runner.masks import MAX_FILL_S, MaskFiller
from trioserve.runner.runner import ModelRunner


@define(eq=False)
class Only:
    """Allows some tokens; notes the thread that asks."""

    token_ids: tuple[int, ...]
    num_bits: int = VOCAB
    threads: list[str] = field(factory=list)

    def allowed(self) -> memoryview:
        self.threads.append(threading.current_thread().name)
        bits = np.zeros(self.num_bits, np.uint8)
        bits[list(self.token_ids)] = 1
        return np.packbits(bits, bitorder="little").data


@define(eq=False)
class Broken:
    def allowed(self) -> memoryview:
        raise RuntimeError("no such state")


def runner_of(decoder: Any) -> ModelRunner:
    return ModelRunner(decoder, max_tokens=16, max_sequences=8, max_len=32)


def test_a_row_draws_what_its_mask_allows_and_the_others_are_free() -> None:
    runner = runner_of(SuccessorDecoder())
    mask = Only((4, 9))
    # After 2 the model likes 3 best, then 4, then 5.
    result = run(
        runner,
        plan(
            1,
            row(Anything(), 0, (1, 2), pages=(0,), mask=mask),
            row(Anything(), 0, (1, 2), pages=(1,)),
            row(Anything(), 0, (1, 2), pages=(2,), mask=Only((30, 40))),
        ),
    )
    assert result.token_ids == (4, 3, 30)
    assert result.failures == ()
    assert mask.threads == ["trioserve-masks"]


def test_tokens_beyond_a_mask_or_beyond_the_model_are_not_drawn() -> None:
    runner = runner_of(SuccessorDecoder())
    result = run(
        runner,
        plan(
            1,
            row(Anything(), 0, (1, 2), pages=(0,), mask=Only((1,), num_bits=3)),
            row(Anything(), 0, (1, 2), pages=(1,), mask=Only((5, VOCAB + 9), num_bits=VOCAB + 14)),
        ),
    )
    assert result.token_ids == (1, 5)


@pytest.mark.parametrize("mask", [Only(()), Broken(), Only((VOCAB + 1,), num_bits=VOCAB + 8)])
def test_a_mask_that_allows_nothing_or_fails_ends_its_row_alone(mask: Any) -> None:
    runner = runner_of(SuccessorDecoder())
    result = run(
        runner,
        plan(
            1,
            row(Anything(), 0, (1, 2), pages=(0,), mask=mask),
            row(Anything(), 0, (1, 2), pages=(1,), mask=Only((7,))),
        ),
    )
    assert result.token_ids == (None, 7)
    (failure,) = result.failures
    assert failure.row == 0
    assert failure.message in (
        "every token is masked: there is none to draw",
        "the grammar cannot be followed: no such state",
    )


def test_a_mask_that_takes_too_long_fails_its_row() -> None:
    times = iter([0.0, 0.1, 1.0, 1.1 + MAX_FILL_S])
    filler = MaskFiller(clock=lambda: next(times))
    rows = [row(Anything(), 0, (1,), pages=(0,), mask=Only((1,))) for _ in range(2)]
    filled = filler.start(rows).join()
    assert filled.failures == {1: "the grammar takes too long to follow"}


def test_masks_are_filled_while_the_step_computes() -> None:
    """The decoder goes on only when the mask has been asked for."""
    asked = threading.Event()

    class Telling(Only):
        def allowed(self) -> memoryview:
            asked.set()
            return super().allowed()

    class Waiting(SuccessorDecoder):
        def forward(self, batch: Any) -> Any:
            assert asked.wait(10), "the mask waits for the step"
            return super().forward(batch)

    result = run(
        runner_of(Waiting()), plan(1, row(Anything(), 0, (1, 2), pages=(0,), mask=Telling((9,))))
    )
    assert result.token_ids == (9,)


def test_a_step_that_fails_leaves_no_mask_being_read() -> None:
    may_go_on = threading.Event()
    mask = Only((9,))

    class Slow(Only):
        def allowed(self) -> memoryview:
            may_go_on.wait(10)
            return mask.allowed()

    class Failing(SuccessorDecoder):
        def forward(self, batch: Any) -> Any:
            may_go_on.set()
            raise RuntimeError("out of memory")

    step = runner_of(Failing()).stage(plan(1, row(Anything(), 0, (1,), pages=(0,), mask=Slow(()))))
    with pytest.raises(RuntimeError, match="out of memory"):
        step.launch()
    assert mask.threads
