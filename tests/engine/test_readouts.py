"""What is read of the model beside its tokens: logprobs of prompt and output, hidden states."""

import pytest
import trio
import trio.testing

from tests.engine.kit import StartBench, expected, read_deltas, request
from trioserve.core import FinishReason, ReadoutParams, TokenLogprobs
from trioserve.engine.abort_reason import AbortReason
from trioserve.testing.fake_model import continuation
from trioserve.testing.fake_readout import fake_state, fake_token_logprobs

PROMPT = bytes(range(65, 95))
READOUT = ReadoutParams(num_top=2, prompt_from=0, token_ids=(97, 98), has_hidden_state=True)


def right_logprobs(prompt: bytes, num_tokens: int, readout: ReadoutParams) -> list[TokenLogprobs]:
    """Of all tokens but the first, those of the prompt and those generated."""
    tokens = (*prompt, *continuation(tuple(prompt), num_tokens))
    return [
        fake_token_logprobs(tokens[:position], tokens[position], readout)
        for position in range(1, len(tokens))
    ]


async def test_each_token_has_its_logprobs_and_the_prompts_come_first(start: StartBench) -> None:
    bench = await start(max_step_tokens=8)
    right = right_logprobs(PROMPT, 6, READOUT)
    with bench.engine.open_stream(request(PROMPT, 6, readout=READOUT)) as stream:
        (deltas,) = await read_deltas(stream)
        choice = stream.choices[0]
        assert choice.prompt_logprobs == right[: len(PROMPT) - 1]
    assert list(deltas[0].prompt_logprobs) == right[: len(PROMPT) - 1]
    assert not any(delta.prompt_logprobs for delta in deltas[1:])
    tokens = [token for delta in deltas for token in delta.tokens]
    assert [token.logprobs for token in tokens] == right[len(PROMPT) - 1 :]
    assert bytes(token.id for token in tokens).decode() == expected(PROMPT, 6)
    assert [token.text_start for token in tokens] == [*range(6)]
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


@pytest.mark.parametrize(
    ("prompt_from", "first"), [(0, 1), (1, 1), (20, 20), (29, 29), (30, 30), (99, 30)]
)
async def test_the_prompt_is_read_from_where_it_was_asked_for(
    start: StartBench, prompt_from: int, first: int
) -> None:
    bench = await start(max_step_tokens=8)
    readout = ReadoutParams(num_top=1, prompt_from=prompt_from)
    right = right_logprobs(PROMPT, 0, readout)
    for max_tokens in (0, 2):
        with bench.engine.open_stream(request(PROMPT, max_tokens, readout=readout)) as stream:
            (deltas,) = await read_deltas(stream)
        assert list(deltas[0].prompt_logprobs) == right[first - 1 :]


async def test_nothing_is_read_that_was_not_asked_for(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_stream(request(PROMPT, 5)) as stream:
        (deltas,) = await read_deltas(stream)
        assert stream.choices[0].prompt_logprobs == stream.choices[0].hidden_states == []
    for delta in deltas:
        assert delta.prompt_logprobs == ()
        assert delta.hidden_state is None
        assert all(token.logprobs is None for token in delta.tokens)


async def test_the_finish_has_the_state_that_the_last_token_was_drawn_from(
    start: StartBench,
) -> None:
    bench = await start()
    tokens = (*PROMPT, *continuation(tuple(PROMPT), 5))
    right = [fake_state(tokens[:end]) for end in range(len(PROMPT), len(tokens))]
    readout = ReadoutParams(has_hidden_state=True)
    with bench.engine.open_stream(request(PROMPT, 5, readout=readout)) as stream:
        (deltas,) = await read_deltas(stream)
        states = stream.choices[0].hidden_states
    assert [state.tolist() for state in states] == right
    assert all(delta.hidden_state is None for delta in deltas[:-1])
    assert deltas[-1].hidden_state is not None
    assert deltas[-1].hidden_state.tolist() == right[-1]


async def test_a_prompt_computed_again_after_a_preemption_is_read_once(start: StartBench) -> None:
    """A short pool: the newest are preempted and recomputed."""
    bench = await start(num_pages=9, page_size=4, max_step_tokens=8)
    prompts = [bytes([65 + index] * 12) for index in range(4)]
    num_tokens = 10
    read: dict[int, tuple[list[TokenLogprobs], list[TokenLogprobs | None], list[list[float]]]] = {}
    num_preemptions = 0

    async def run(index: int, max_tokens: int) -> None:
        nonlocal num_preemptions
        asked = request(prompts[index], max_tokens, readout=READOUT)
        with bench.engine.open_stream(asked) as stream:
            (deltas,) = await read_deltas(stream)
            num_preemptions += stream.choices[0].sequence.num_preemptions
            assert len(stream.choices[0].prompt_logprobs) == len(prompts[index]) - 1
            read[index] = (
                [each for delta in deltas for each in delta.prompt_logprobs],
                [token.logprobs for delta in deltas for token in delta.tokens],
                [state.tolist() for state in stream.choices[0].hidden_states],
            )

    async with trio.open_nursery() as nursery:
        for index in range(4):
            nursery.start_soon(run, index, 0 if index == 3 else num_tokens)
    assert num_preemptions > 0
    for index, prompt in enumerate(prompts):
        max_tokens = 0 if index == 3 else num_tokens
        right = right_logprobs(prompt, max_tokens, READOUT)
        tokens = (*prompt, *continuation(tuple(prompt), max_tokens))
        ends = range(len(prompt), len(tokens)) if max_tokens else [len(prompt)]
        states = [fake_state(tokens[:end]) for end in ends]
        assert read[index] == (right[:11], right[11:], states)
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_prompt_that_was_not_read_to_its_end_gives_no_logprobs(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_step_tokens=8)
    with bench.engine.open_stream(request(PROMPT, 5, readout=READOUT)) as stream:
        await bench.finish_step()
        assert len(stream.choices[0].prompt_logprobs) == 8
        bench.engine.abort(stream, AbortReason.SHUTDOWN)
        ((delta,),) = await read_deltas(stream)
    assert delta.finish is not None
    assert delta.finish.reason is FinishReason.ABORT
    assert delta.prompt_logprobs == ()
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
