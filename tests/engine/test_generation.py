"""What comes out of an undisturbed engine, one request or many, and what ends a choice."""

import attrs
import pytest
import trio
import trio.testing

from tests.engine.kit import StartBench, expected, read_all, request
from trioserve.core import Finish, FinishReason
from trioserve.errors import RequestError, RequestFailed, Unavailable


async def test_a_choice_is_the_models_continuation(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_stream(request(b"hello", 20)) as stream:
        assert await read_all(stream) == [expected(b"hello", 20)]
        assert stream.choices[0].finish == Finish(FinishReason.LENGTH)
    bench.check_idle()


async def test_a_prompt_longer_than_a_chunk_is_prefilled_in_chunks(start: StartBench) -> None:
    prompt = bytes(range(32, 97))
    bench = await start(max_step_tokens=8)
    with bench.engine.open_stream(request(prompt, 3)) as stream:
        assert await read_all(stream) == [expected(prompt, 3)]
    assert max(plan.num_tokens for plan in bench.runner.plans) <= 8
    bench.check_idle()


async def test_batched_requests_produce_what_they_produce_alone(start: StartBench) -> None:
    prompts = [bytes([65 + index]) * (1 + 3 * index) for index in range(12)]
    texts: dict[bytes, list[str]] = {}
    bench = await start(max_running_requests=5)

    async def run(prompt: bytes) -> None:
        with bench.engine.open_stream(request(prompt, 17)) as stream:
            texts[prompt] = await read_all(stream)

    async with trio.open_nursery() as nursery:
        for prompt in prompts:
            nursery.start_soon(run, prompt)
    assert max(len(plan.rows) for plan in bench.runner.plans) == 5
    bench.check_idle()
    assert texts == {prompt: [expected(prompt, 17)] for prompt in prompts}


async def test_samples_and_prompts_share_one_stream_in_prompt_order(start: StartBench) -> None:
    bench = await start()
    with bench.engine.open_stream(request([b"one", b"two"], 6, num_samples=2)) as stream:
        texts = await read_all(stream)
    assert texts == [
        expected(prompt, 6, index) for index, prompt in enumerate([b"one", b"one", b"two", b"two"])
    ]


async def test_what_several_choices_have_is_given_in_their_order(start: StartBench) -> None:
    bench = await start(is_automatic=False)
    with bench.engine.open_stream(request(b"one", 6, num_samples=16)) as stream:
        await bench.finish_step()
        while not all(choice.num_tokens for choice in stream.choices):
            await bench.finish_step()
        assert [delta.index for delta in await stream.receive()] == [*range(16)]


async def test_a_stop_string_ends_the_choice_before_the_match(start: StartBench) -> None:
    whole = expected(b"x", 30)
    stop = whole[7:10]
    bench = await start()
    with bench.engine.open_stream(request(b"x", 30, stop=(stop,))) as stream:
        assert await read_all(stream) == [whole[: whole.index(stop)]]
        assert stream.choices[0].finish == Finish(FinishReason.STOP, stop)
        # Tokens after the match are not billed, at depth 2 neither.
        assert stream.num_output_tokens == whole.index(stop) + len(stop)
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_text_held_back_for_a_stop_is_given_at_the_end(start: StartBench) -> None:
    whole = expected(b"x", 9)
    bench = await start()
    with bench.engine.open_stream(request(b"x", 9, stop=(whole[-2:] + "!",))) as stream:
        assert await read_all(stream) == [whole]


async def test_a_poisoned_request_fails_alone(start: StartBench) -> None:
    bench = await start(poison=ord("!"))
    with (
        bench.engine.open_stream(request(b"good", 10)) as good,
        bench.engine.open_stream(request(b"bad!", 10)) as bad,
    ):
        with pytest.raises(RequestFailed, match="not finite"):
            await read_all(bad)
        assert await read_all(good) == [expected(b"good", 10)]
    bench.check_idle()


async def test_a_request_whose_tokens_cannot_be_made_text_fails_alone(
    start: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such token")

    bench = await start(is_automatic=False)
    with (
        bench.engine.open_stream(request(b"bad", 5, num_samples=2)) as bad,
        bench.engine.open_stream(request(b"good", 5)) as good,
    ):
        for name in ("feed", "flush"):
            monkeypatch.setattr(bad.choices[0].output.assembler, name, fail)
        bench.finish_all()
        with pytest.raises(RequestFailed, match="no such token"):
            await read_all(bad)
        assert await read_all(good) == [expected(b"good", 5)]
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


async def test_a_request_that_can_never_fit_is_refused_before_it_waits(
    start: StartBench,
) -> None:
    bench = await start(num_pages=4, page_size=4)
    with pytest.raises(RequestError, match="capacity of 16 tokens") as refused:
        with bench.engine.open_stream(request(b"12345678", 10)):
            pass
    assert refused.value.code == "context_length_exceeded"
    with bench.engine.open_stream(request(b"12345678", 9)) as stream:
        assert await read_all(stream) == [expected(b"12345678", 9)]
    bench.check_idle()


async def test_the_queue_limit_counts_what_waits_beyond_the_slots(start: StartBench) -> None:
    bench = await start(is_automatic=False, max_running_requests=1, max_queued_requests=1)
    engine = bench.engine
    with engine.open_stream(request(b"a")), engine.open_stream(request(b"b")):
        with pytest.raises(Unavailable) as refused, engine.open_stream(request(b"c")):
            pass
        assert refused.value.code == "overloaded"


async def test_without_a_queue_the_second_request_is_refused_at_once(
    start: StartBench,
) -> None:
    bench = await start(is_automatic=False, max_running_requests=1, max_queued_requests=0)
    with bench.engine.open_stream(request(b"a")):
        with pytest.raises(Unavailable), bench.engine.open_stream(request(b"b")):
            pass
    with bench.engine.open_stream(request(b"c")):
        pass


async def test_each_prompt_of_a_request_has_its_own_limit(start: StartBench) -> None:
    bench = await start()
    short, long = request([b"one", b"two"]).generations
    generations = (attrs.evolve(short, max_tokens=3), attrs.evolve(long, max_tokens=9))
    batch = attrs.evolve(request(b"x"), generations=generations)
    with bench.engine.open_stream(batch) as stream:
        assert await read_all(stream) == [expected(b"one", 3), expected(b"two", 9, 1)]
