"""`/abort_request`: exactly the named request ends, in whatever state, and its reader is told."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, StartApi
from tests.api.open_jobs import GENERATE, Requests, check_aborted, finishes


@pytest.fixture
def requests_of(nursery: trio.Nursery) -> Any:
    return lambda bench: Requests(bench, nursery)


@pytest.mark.row("S-N-015", "S-C-055", "S-H-040")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_decoding_request_ends_with_abort_and_what_it_had(
    start: StartApi, requests_of: Any, path: str, stream: bool
) -> None:
    bench = await start("partial text", is_automatic=False)
    requests = requests_of(bench)
    await requests.open("job", path, stream=stream)
    for _ in range(4):
        await bench.finish_step()
    await check_aborted(bench, rid="job")
    # Without one more step.
    assert finishes(requests.answers["job"]) == [("part", "abort")]
    usage = requests.answers["job"].json()["usage"] if not stream else None
    assert usage is None or usage["completion_tokens"] == 4
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
    assert await bench.metric("aborted_requests_total", reason="requested") == 1
    assert await bench.metric("generation_tokens_total") == 4


@pytest.mark.row("S-N-015")
@pytest.mark.parametrize("path", [*ENDPOINTS, GENERATE])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_queued_request_ends_before_its_first_step(
    start: StartApi, requests_of: Any, path: str, stream: bool
) -> None:
    bench = await start("text", is_automatic=False, max_running_requests=1)
    requests = requests_of(bench)
    await requests.open("running")
    await requests.open("queued", path, stream=stream)
    await check_aborted(bench, rid="queued")
    answer = requests.answers["queued"]
    if path == GENERATE:
        last = answer.events()[-1] if stream else answer.json()
        assert (last["text"], last["output_ids"]) == ("", [])
        assert last["meta_info"]["finish_reason"] == {
            "type": "abort",
            "message": "The request was aborted.",
        }
    else:
        assert finishes(answer) == [("", "abort")]
    assert bench.engine.batch.scheduler.num_waiting == 0
    assert "running" not in requests.answers
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    assert finishes(requests.answers["running"]) == [("text", "stop")]
    assert len(bench.prompts()) == 1, "the aborted request had a step"
    bench.check_idle()


@pytest.mark.row("S-N-015")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prefilling_request_ends_and_its_pages_wait_for_the_step_in_flight(
    start: StartApi, requests_of: Any, stream: bool
) -> None:
    bench = await start("text", is_automatic=False)
    requests = requests_of(bench)
    # More than one step's tokens.
    await requests.open("long", prompt="a" * 200, stream=stream)
    await bench.finish_step()
    await check_aborted(bench, rid="long")
    assert finishes(requests.answers["long"]) == [("", "abort")]
    assert bench.engine.batch.pool.statistics().quarantined > 0
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


@pytest.mark.row("S-N-015")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_rid_aborts_all_of_its_sequences(
    start: StartApi, requests_of: Any, path: str
) -> None:
    bench = await start("abcdefgh", "abcdefgh", is_automatic=False)
    requests = requests_of(bench)
    fields = {"prompt": ["a", "b"]} if path == COMPLETIONS else {}
    await requests.open("many", path, n=3, **fields)
    for _ in range(4):
        await bench.finish_step()
    await check_aborted(bench, rid="many")
    ended = finishes(requests.answers["many"])
    # Samples of a prompt that fills a page begin once the first of them has computed it.
    assert (
        ended == [("abcd", "abort")] * 6 if fields else [("abcd", "abort")] + [("ab", "abort")] * 2
    )
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()


@pytest.mark.row("S-N-015", "S-N-014")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rid", ["batch", ["x", "batch_1", "z"]])
async def test_one_prompt_of_a_batch_is_aborted_by_its_own_name(
    start: StartApi, requests_of: Any, stream: bool, rid: Any
) -> None:
    bench = await start("abcd", is_automatic=False)
    requests = requests_of(bench)
    await requests.open(rid, GENERATE, text=["a", "b", "c"], stream=stream)
    for _ in range(2):
        await bench.finish_step()
    await check_aborted(bench, rid="batch_1")
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    (answer,) = requests.answers.values()
    if stream:
        events = answer.events()
        last = [[e for e in events if e["index"] == index][-1] for index in range(3)]
    else:
        last = answer.json()
    reasons = [each["meta_info"]["finish_reason"]["type"] for each in last]
    assert reasons == ["stop", "abort", "stop"]
    assert [each["text"] for each in last] == ["abcd", "ab", "abcd"]
    bench.check_idle()


@pytest.mark.row("S-N-015")
@pytest.mark.parametrize("body", [{"abort_all": True}, {"abort_all": True, "rid": ""}])
async def test_abort_all_ends_everything_that_is_open(
    start: StartApi, requests_of: Any, body: dict[str, Any]
) -> None:
    bench = await start("text", is_automatic=False, max_running_requests=2)
    requests = requests_of(bench)
    await requests.open("one", stream=True)
    await requests.open("two", CHAT)
    await requests.open("queued", CHAT, n=2, stream=True)
    await bench.finish_step()
    await check_aborted(bench, **body)
    reasons = {name: finishes(answer)[0][1] for name, answer in requests.answers.items()}
    assert reasons == dict.fromkeys(("one", "two", "queued"), "abort")
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    bench.check_idle()
    assert (await bench.post(CHAT)).texts() == ["text"]


async def test_aborting_works_while_the_server_drains(start: StartApi, requests_of: Any) -> None:
    bench = await start("text", is_automatic=False)
    requests = requests_of(bench)
    await requests.open("slow")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.engine.drain, 60)
        await trio.testing.wait_all_tasks_blocked()
        await check_aborted(bench, rid="slow")
    assert finishes(requests.answers["slow"]) == [("", "abort")]
    bench.finish_all()


@pytest.mark.case(14)
async def test_a_batch_whose_client_left_is_admitted_no_further(
    start: StartApi, requests_of: Any
) -> None:
    """Children that still waited when the client left were served all the same."""
    bench = await start("text", is_automatic=False, max_running_requests=2)
    prompts = [f"prompt {index}" for index in range(16)]
    with trio.CancelScope() as left:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: bench.wire_request(COMPLETIONS, prompt=prompts, n=4))
            await bench.finish_step()
            left.cancel()
    num_planned = len(bench.prompts())
    assert num_planned == 2
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.prompts()) == num_planned
    bench.check_idle()
