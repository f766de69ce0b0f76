"""What is read and obeyed beside plain sampling: logprobs, states, penalties, bias and masks."""

import math
from typing import Any, cast

import numpy as np
import pytest

from tests.runner.kit import VOCAB, Anything, Pages, SuccessorDecoder, plan, row, run
from trioserve.core import ReadoutParams, SamplingParams
from trioserve.model.decoder import HEAD_ROWS
from trioserve.runner.runner import ModelRunner

TOTAL = math.log(math.exp(3.0) + math.exp(2.0) + math.exp(1.0) + (VOCAB - 3))
"""The log-sum-exp of every row of the decoder."""
NEXT, SECOND, THIRD, OTHER = (logit - TOTAL for logit in (3.0, 2.0, 1.0, 0.0))
"""Logprobs of the token's successor, of the one after it, …"""
LOGPROBS = ReadoutParams(num_top=2)


def approx(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-6)


def test_rows_that_ask_for_nothing_have_no_readout_and_cost_no_logits(
    runner: ModelRunner, decoder: SuccessorDecoder
) -> None:
    first, second = Anything(), Anything()
    result = run(
        runner,
        plan(
            1,
            row(first, 0, (5, 6, 7), pages=(1,)),
            row(second, 0, (8, 9), pages=(2,), is_sampled=False),
        ),
    )
    assert not result.readouts
    assert decoder.inputs[0]["output_rows"] == [2]
    assert decoder.head_rows == [1]


def test_a_drawn_token_comes_with_its_logprob_and_the_best(runner: ModelRunner) -> None:
    result = run(
        runner,
        plan(
            1,
            row(Anything(), 0, (5,), pages=(1,)),
            row(Anything(), 0, (7,), pages=(2,), readout=LOGPROBS),
        ),
    )
    assert set(result.readouts) == {1}
    readout = result.readouts[1]
    assert readout.sampled is not None
    assert readout.sampled.logprob == pytest.approx(NEXT, abs=1e-6)
    assert [token_id for token_id, _ in readout.sampled.top] == [8, 9]
    assert [value for _, value in readout.sampled.top] == approx(NEXT, SECOND)
    assert readout.prompt == ()
    assert readout.vector is None


def test_logprobs_are_those_before_bias_penalties_and_mask(runner: ModelRunner) -> None:
    sampling = SamplingParams(temperature=0.5, logit_bias=((30, 100.0),), presence_penalty=1.0)
    result = run(
        runner,
        plan(
            1,
            row(
                Anything(),
                0,
                (7,),
                pages=(1,),
                sampling=sampling,
                num_prompt=1,
                history=(7,),
                masked_ids=frozenset({8}),
                readout=LOGPROBS,
            ),
        ),
    )
    assert result.token_ids == (30,)
    sampled = result.readouts[0].sampled
    assert sampled is not None
    assert sampled.logprob == pytest.approx(OTHER, abs=1e-6)
    assert [token_id for token_id, _ in sampled.top] == [8, 9]


def test_prompt_targets_are_read_from_the_positions_before_them(
    runner: ModelRunner, decoder: SuccessorDecoder
) -> None:
    # The prompt is 1, 2, 4, 7, 9, read from its second token on, in chunks of 3 and 2.
    sequence, other = Anything(), Anything()
    readout = ReadoutParams(num_top=1, prompt_from=1)
    first = run(
        runner,
        plan(
            1,
            row(other, 0, (20,), pages=(7,)),
            row(
                sequence,
                0,
                (1, 2, 4),
                pages=(1, 2),
                is_sampled=False,
                readout=readout,
                target_start=1,
                target_ids=(2, 4, 7),
            ),
        ),
    )
    second = run(
        runner,
        plan(
            2,
            row(
                sequence,
                3,
                (7, 9),
                pages=(1, 2),
                num_prompt=5,
                readout=readout,
                target_start=4,
                target_ids=(9,),
            ),
        ),
    )
    assert decoder.inputs[0]["output_rows"] == [0, 1, 2, 3]
    assert decoder.inputs[1]["output_rows"] == [0, 1]
    assert set(first.readouts) == {1}
    read = [*first.readouts[1].prompt, *second.readouts[0].prompt]
    assert [target.logprob for target in read] == approx(NEXT, SECOND, THIRD, SECOND)
    assert [target.top[0][0] for target in read] == [2, 3, 5, 8]
    assert first.readouts[1].sampled is None
    sampled = second.readouts[0].sampled
    assert sampled is not None
    assert sampled.top[0][0] == second.token_ids[0] == 10


def test_tokens_asked_for_by_id_are_read_at_every_position(runner: ModelRunner) -> None:
    readout = ReadoutParams(num_top=0, prompt_from=1, token_ids=(3, 40, 2))
    result = run(
        runner,
        plan(
            1,
            row(
                Anything(),
                0,
                (1, 2),
                pages=(1,),
                num_prompt=2,
                readout=readout,
                target_start=1,
                target_ids=(2,),
            ),
        ),
    )
    (target,) = result.readouts[0].prompt
    sampled = result.readouts[0].sampled
    assert sampled is not None
    assert list(target.chosen) == approx(SECOND, OTHER, NEXT)
    assert list(sampled.chosen) == approx(NEXT, OTHER, OTHER)
    assert target.top == sampled.top == ()


def test_a_sequence_that_draws_nothing_has_its_prompt_read(runner: ModelRunner) -> None:
    sequence = Anything(max_tokens=0)
    readout = ReadoutParams(num_top=0, prompt_from=1, has_hidden_state=True)
    asked: dict[str, Any] = {"is_sampled": False, "num_prompt": 4, "readout": readout}
    chunks = [
        row(sequence, 0, (1, 2), pages=(1,), target_start=1, target_ids=(2, 3), **asked),
        row(sequence, 2, (3, 4), pages=(1,), target_start=3, target_ids=(4,), **asked),
    ]
    first, second = (run(runner, plan(n, chunk)) for n, chunk in enumerate(chunks, start=1))
    assert first.token_ids == second.token_ids == (None,)
    assert [target.logprob for target in first.readouts[0].prompt] == approx(NEXT, NEXT)
    assert [target.logprob for target in second.readouts[0].prompt] == approx(NEXT)
    assert first.readouts[0].vector is None
    vector = second.readouts[0].vector
    assert vector is not None
    assert vector.tolist() == [4.0, 3.0]
    assert second.readouts[0].sampled is None


def test_the_hidden_state_is_that_at_the_position_drawn_from(runner: ModelRunner) -> None:
    sequence = Anything()
    readout = ReadoutParams(has_hidden_state=True)
    first = run(runner, plan(1, row(sequence, 4, (30, 31), pages=(1, 2), readout=readout)))
    second = run(runner, plan(2, row(sequence, 6, pages=(1, 2), readout=readout)))
    for result, expected in ((first, [31.0, 5.0]), (second, [32.0, 6.0])):
        vector = result.readouts[0].vector
        assert vector is not None
        assert vector.dtype == np.float32
        assert vector.tolist() == expected
        assert vector.base is None, "the whole step's states would be kept alive"
        assert result.readouts[0].sampled is None


def test_a_chunk_that_draws_nothing_has_no_hidden_state(runner: ModelRunner) -> None:
    # Recomputed after a preemption: the chunk ends where the prompt does, the sequence goes on.
    readout = ReadoutParams(has_hidden_state=True)
    again = row(Anything(), 0, (1, 2), pages=(1,), is_sampled=False, num_prompt=2, readout=readout)
    assert not run(runner, plan(1, again)).readouts


@pytest.mark.parametrize(("bias", "expected"), [(13.5, 12), (12.5, 13)])
def test_penalties_count_the_carried_token(runner: ModelRunner, bias: float, expected: int) -> None:
    sequence = Anything()
    forced = SamplingParams(temperature=0.0, logit_bias=((12, 100.0),))
    assert run(runner, plan(1, row(sequence, 4, (12,), pages=(1, 2), sampling=forced))).token_ids
    # 12 was generated four times and is carried once more, so 10 of its bias are taken off; what
    # follows it is 13, whose logit is 3. With four times counted, 12 would win both.
    sampling = SamplingParams(temperature=0.0, logit_bias=((12, bias),), frequency_penalty=2.0)
    carried = row(
        sequence, 5, pages=(1, 2), sampling=sampling, num_prompt=1, history=(10, *(12,) * 4)
    )
    assert run(runner, plan(2, carried)).token_ids == (expected,)


@pytest.mark.parametrize("num_tokens", [HEAD_ROWS - 1, HEAD_ROWS, HEAD_ROWS + 1, 2 * HEAD_ROWS + 5])
def test_the_head_takes_no_more_rows_at_once_than_its_bound(num_tokens: int) -> None:
    decoder = SuccessorDecoder(Pages(page_size=16, num_pages=64))
    runner = ModelRunner(cast("Any", decoder), max_tokens=400, max_sequences=4, max_len=512)
    prompt_ids = tuple(n % VOCAB for n in range(num_tokens))
    readout = ReadoutParams(num_top=1, prompt_from=1)
    result = run(
        runner,
        plan(
            1,
            row(Anything(), 0, (30,), pages=(40,)),
            row(
                Anything(),
                0,
                prompt_ids,
                pages=tuple(range(1, 20)),
                num_prompt=num_tokens,
                readout=readout,
                target_start=1,
                target_ids=prompt_ids[1:],
            ),
        ),
    )
    assert max(decoder.head_rows) <= HEAD_ROWS
    assert sum(decoder.head_rows) == num_tokens + 1
    assert [target.top[0][0] for target in result.readouts[1].prompt] == list(prompt_ids[1:])
    assert result.token_ids == (31, num_tokens % VOCAB)


def test_staging_checks_that_the_targets_are_of_the_tokens_fed(runner: ModelRunner) -> None:
    for target_start, target_ids in ((2, (5,)), (3, (5, 6, 7))):
        with pytest.raises(AssertionError):
            runner.stage(
                plan(
                    1,
                    row(
                        Anything(),
                        2,
                        (3, 4),
                        pages=(1,),
                        target_start=target_start,
                        target_ids=target_ids,
                    ),
                )
            )
