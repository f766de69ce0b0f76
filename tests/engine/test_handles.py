"""Requests are found by their names for as long as they are open, and aborted whole or in part."""

import trio
import trio.testing

from tests.engine.kit import StartBench, expected, read_all, read_deltas, request
from trioserve.core import FinishReason
from trioserve.engine.abort_reason import AbortReason

PROMPTS = [b"one", b"two", b"three"]
HANDLES = ("r_0", "r_1", "r_2")


async def test_a_request_is_found_by_its_names_while_it_is_open(start: StartBench) -> None:
    bench = await start()
    handles = bench.engine.batch.handles
    asked = request(PROMPTS, 4, request_id="r", handles=HANDLES)
    with bench.engine.open_stream(asked) as stream:
        assert handles.find("r") == (stream, None)
        assert handles.find("r_1") == (stream, 1)
        assert handles.find("r_3") is None
        await read_all(stream)
        assert handles.find("r_2") == (stream, 2), "it is open until its scope is left"
    assert handles.find("r") is None
    assert len(handles) == 0
    bench.check_idle()


async def test_a_name_stays_with_the_request_that_had_it_first(start: StartBench) -> None:
    bench = await start()
    handles = bench.engine.batch.handles
    with bench.engine.open_stream(request(b"a", request_id="same")) as first:
        with bench.engine.open_stream(request(b"b", request_id="same")):
            assert handles.find("same") == (first, None)
        assert handles.find("same") == (first, None)


async def test_a_cancelled_request_leaves_no_name_behind(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    with trio.CancelScope() as scope:
        with bench.engine.open_stream(request(PROMPTS, handles=HANDLES)) as stream:
            scope.cancel()
            await read_all(stream)
    assert len(bench.engine.batch.handles) == 0


async def test_the_samples_of_one_prompt_are_aborted_alone(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    batch = bench.engine.batch
    asked = request(PROMPTS, 6, num_samples=2, handles=HANDLES)
    with bench.engine.open_stream(asked) as stream:
        await bench.finish_step()
        await bench.finish_step()
        batch.abort_generation(stream, 1, AbortReason.REQUESTED)
        billed = [choice.num_tokens for choice in stream.choices[2:4]]
        bench.finish_all()
        deltas = await read_deltas(stream)
        batch.abort_generation(stream, 1, AbortReason.REQUESTED)  # again: it has ended
        assert [choice.num_tokens for choice in stream.choices[2:4]] == billed
    for index, of_choice in enumerate(deltas):
        text = "".join(delta.text for delta in of_choice)
        finish = of_choice[-1].finish
        assert finish is not None
        if index in (2, 3):
            assert finish.reason is FinishReason.ABORT
            assert text == expected(PROMPTS[1], billed[index - 2], index)
        else:
            assert finish.reason is FinishReason.LENGTH
            assert text == expected(PROMPTS[index // 2], 6, index)
    assert bench.engine.statistics.aborted.labels("requested")._value.get() == 1
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_request_cut_short_twice_is_counted_once(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(PROMPTS, 6)) as stream:
        bench.engine.batch.abort_generation(stream, 0, AbortReason.REQUESTED)
    aborted = bench.engine.statistics.aborted
    assert aborted.labels("requested")._value.get() == 1
    assert aborted.labels("cancelled")._value.get() == 0


async def test_an_aborted_prompt_does_not_make_the_others_start(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_running_requests=1)
    with bench.engine.open_stream(request(b"first", 3)):
        await bench.device.wait_submitted()
        with bench.engine.open_stream(request(PROMPTS, 3)) as waiting:
            bench.engine.batch.abort_generation(waiting, 0, AbortReason.REQUESTED)
            assert not waiting.is_started
            bench.engine.abort(waiting, AbortReason.REQUESTED)
            assert waiting.is_started, "its reader would wait for ever"
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
