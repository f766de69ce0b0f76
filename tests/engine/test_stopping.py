"""What ends a choice: patterns, kept stops, no tokens at all; and a pattern that takes too long."""

import pytest
import trio.testing

from tests.engine.kit import StartBench, expected, read_all, read_deltas, request
from trioserve.core import Finish, FinishReason, StopParams
from trioserve.engine.abort_reason import AbortReason
from trioserve.errors import RequestError

WHOLE = expected(b"x", 30)


@pytest.mark.row("S-C-036")
async def test_a_stop_pattern_ends_the_choice_before_the_match(start: StartBench) -> None:
    pattern = f"{WHOLE[7]}.{WHOLE[9]}"
    bench = await start()
    with bench.engine.open_stream(request(b"x", 30, stop=StopParams(regexes=(pattern,)))) as stream:
        assert await read_all(stream) == [WHOLE[:7]]
        assert stream.choices[0].finish == Finish(FinishReason.STOP, pattern)
        # Tokens after the match are not billed, at depth 2 neither.
        assert stream.num_output_tokens == 10
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


@pytest.mark.row("S-C-035", "S-C-037")
async def test_a_stop_counts_from_the_least_number_of_tokens_on_and_may_be_kept(
    start: StartBench,
) -> None:
    bench = await start()
    for min_tokens, is_kept, num_shown in [(11, False, 7), (11, True, 11), (12, True, 30)]:
        stop = StopParams((WHOLE[7:11],), is_kept=is_kept, min_tokens=min_tokens)
        with bench.engine.open_stream(request(b"x", 30, stop=stop)) as stream:
            assert await read_all(stream) == [WHOLE[:num_shown]]
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_pattern_that_takes_too_long_fails_its_request_alone(start: StartBench) -> None:
    # The text has no digit, so each letter is tried in both ways.
    catastrophe = StopParams(regexes=(r"(?:[a-z]|[a-z])*(?=\d\W)",))
    bench = await start()
    with (
        bench.engine.open_stream(request(b"good", 40)) as good,
        bench.engine.open_stream(request(b"bad", 60, num_samples=2, stop=catastrophe)) as bad,
    ):
        with pytest.raises(RequestError, match=r"^Invalid request: stop_regex ") as refused:
            await read_all(bad)
        assert refused.value.code == "stop_regex_timeout"
        assert refused.value.param == "stop_regex"
        assert bad.is_finished
        assert await read_all(good) == [expected(b"good", 40)]
    failed = bench.engine.statistics.aborted.labels("failed")
    assert failed._value.get() == 1
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


@pytest.mark.case(28)
async def test_a_prompt_without_tokens_to_generate_is_read_and_ends(start: StartBench) -> None:
    bench = await start(max_step_tokens=8)
    prompts = [bytes(range(32, 97)), b"short"]
    with bench.engine.open_stream(request(prompts, 0, num_samples=2)) as stream:
        deltas = await read_deltas(stream)
        assert stream.num_output_tokens == 0
    for each in deltas:
        (delta,) = each
        assert (delta.text, delta.num_tokens, delta.tokens) == ("", 0, ())
        assert delta.finish == Finish(FinishReason.LENGTH)
    num_fed = sum(plan.num_tokens for plan in bench.runner.plans)
    # The second sample of each feeds its last page alone, which has one token in both.
    assert num_fed == sum(map(len, prompts)) + 2, "computed again, or not to its end"
    assert bench.engine.statistics.generation_tokens._value.get() == 0
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_prompt_without_tokens_to_generate_can_be_aborted_half_way(
    start: StartBench,
) -> None:
    bench = await start(is_automatic=False, max_step_tokens=8)
    with bench.engine.open_stream(request(bytes(range(40)), 0)) as stream:
        await bench.finish_step()
        bench.engine.abort(stream, AbortReason.SHUTDOWN)
        assert stream.choices[0].finish == Finish(FinishReason.ABORT)
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
