"""Texts through the engine: their order, what shares a step, and who takes turns."""

import pytest
import trio
import trio.testing

from tests.embeddings.conftest import StartBench
from tests.embeddings.kit import check_vectors, request
from tests.engine.kit import expected, read_all
from tests.engine.kit import request as generation
from trioserve.errors import RequestFailed, Unavailable


async def test_each_text_gets_its_own_vector_in_the_order_sent(
    start: StartBench, depth: int
) -> None:
    bench = await start(depth=depth)
    texts = (b"aa", b"bbbbbbbb", b"c", b"dddd", b"aa")
    check_vectors(await bench.embed(*texts), *texts)
    bench.check_idle()


async def test_a_step_takes_whole_texts_up_to_its_budget_padding_included(
    start: StartBench,
) -> None:
    bench = await start(max_step_tokens=16)
    await bench.embed(b"a", b"bbbbbbbb", b"cc", b"dddd", b"ee")
    # The longest first: 8 + 4 padded to 16; another row would make it 24.
    assert bench.planned() == [[b"bbbbbbbb", b"dddd"], [b"cc", b"ee", b"a"]]


async def test_a_text_longer_than_a_step_is_a_step_of_its_own(start: StartBench) -> None:
    bench = await start(max_step_tokens=4)
    await bench.embed(b"a" * 30, b"b", b"c")
    assert bench.planned() == [[b"a" * 30], [b"b", b"c"]]


async def test_texts_of_several_requests_share_a_step_in_order_of_arrival(
    start: StartBench,
) -> None:
    bench = await start(is_automatic=False, max_step_tokens=16)
    async with trio.open_nursery() as nursery:
        for text in (b"first", b"aa", b"bb", b"cc"):
            nursery.start_soon(bench.embed, text)
            await trio.testing.wait_all_tasks_blocked()
        bench.finish_all()
    assert bench.planned() == [[b"first"], [b"aa", b"bb", b"cc"]]
    bench.check_idle()


@pytest.mark.row("S-Q-001")
async def test_no_more_texts_run_at_once_than_the_limit_says(start: StartBench, depth: int) -> None:
    bench = await start(
        depth=depth, is_automatic=False, max_step_tokens=100, max_running_requests=3
    )
    texts = [bytes([65 + index]) for index in range(5)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.embed, *texts)
        await trio.testing.wait_all_tasks_blocked()
        assert [len(step) for step in bench.planned()] == [3]
        assert bench.engine.embedding_batch.num_waiting == 2
        bench.finish_all()
    assert [len(step) for step in bench.planned()] == [3, 2]


async def test_generation_and_embeddings_take_turns_while_both_have_work(
    start: StartBench, depth: int
) -> None:
    bench = await start(depth=depth, is_automatic=False, max_step_tokens=1)
    finished: list[str] = []

    async def generate() -> None:
        with bench.engine.open_stream(generation(b"prompt", 6)) as stream:
            assert await read_all(stream) == [expected(b"prompt", 6)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(generate)
        nursery.start_soon(bench.embed, *[b"x"] * 6)
        while len(finished) < 12:
            await bench.device.wait_submitted()
            step = bench.device.unfinished[0].step
            finished.append(type(step).__name__)
            await bench.finish_step()
    # Which of them begins is chance.
    kinds = ["FakeStep", "FakeEmbeddingStep"]
    assert finished in (kinds * 6, kinds[::-1] * 6)


async def test_a_request_of_many_texts_does_not_hold_up_generation(start: StartBench) -> None:
    """Greedy text is what it is without embeddings."""
    bench = await start(is_automatic=False, max_step_tokens=1, max_running_requests=8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.embed, *[b"x"] * 500)
        await trio.testing.wait_all_tasks_blocked()
        bench.finish_all()
        with bench.engine.open_stream(generation(b"prompt", 20)) as stream:
            assert await read_all(stream) == [expected(b"prompt", 20)]
            assert bench.engine.embedding_batch.num_waiting > 400
    bench.check_idle()


@pytest.mark.row("S-Q-002")
async def test_a_full_queue_refuses_the_next_request_but_not_generation(
    start: StartBench,
) -> None:
    bench = await start(is_automatic=False, max_running_requests=1, max_queued_requests=2)
    async with trio.open_nursery() as nursery:
        # One request is never split: its three texts all come in.
        nursery.start_soon(bench.embed, b"a", b"b", b"c")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Unavailable, match="The request queue is full") as refused:
            with bench.engine.open_embedding(request(b"d")):
                raise AssertionError("the request was admitted")
        assert refused.value.code == "overloaded"
        bench.engine.check_queue()
        bench.finish_all()
    bench.engine.check_embedding_queue()
    bench.check_idle()


async def test_a_text_that_fails_ends_its_own_request_alone(start: StartBench) -> None:
    bench = await start(is_automatic=False, poison=ord("!"), max_step_tokens=100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.embed, b"hold the device")
        await trio.testing.wait_all_tasks_blocked()

        async def fail() -> None:
            with pytest.raises(RequestFailed, match="not finite"):
                await bench.embed(b"good", b"bad!")

        async def succeed() -> None:
            check_vectors(await bench.embed(b"fine"), b"fine")

        for task in (fail, succeed):
            nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
        bench.finish_all()
    assert bench.planned() == [[b"hold the device"], [b"good", b"bad!", b"fine"]]
    assert bench.aborted("failed") == 1
    bench.check_idle()


@pytest.mark.case(110)
async def test_a_thousand_calls_leave_nothing_behind(start: StartBench, depth: int) -> None:
    bench = await start(depth=depth)
    for number in range(1000):
        text = str(number).encode()
        check_vectors(await bench.embed(text, b"and"), text, b"and")
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
    batch = bench.engine.embedding_batch
    assert batch.last_retired == batch.last_launched >= 1000
