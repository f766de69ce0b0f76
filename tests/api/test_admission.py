"""The limits of the queue, as clients meet them."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import COMPLETIONS, ENDPOINTS, ApiBench, StartApi

FULL = "The request queue is full."


class Clients:
    """Requests that stay open, each over a connection of its own."""

    def __init__(self, bench: ApiBench, nursery: trio.Nursery) -> None:
        self._bench = bench
        self._nursery = nursery
        self.answers: dict[int, Answer] = {}

    async def arrive(self, index: int, path: str = COMPLETIONS, **fields: Any) -> trio.CancelScope:
        """A request that has been admitted or refused when this returns; cancel it to leave."""
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                answer = await self._bench.wire_request(path, **fields)
                self.answers[index] = Answer(answer.status, answer.headers, answer.body)

        self._nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        return scope


@pytest.fixture
def clients_of(nursery: trio.Nursery) -> Any:
    return lambda bench: Clients(bench, nursery)


def counts(bench: ApiBench) -> tuple[int, int]:
    scheduler = bench.engine.batch.scheduler
    return scheduler.num_running, scheduler.num_waiting


async def drain(bench: ApiBench) -> None:
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.row("S-Q-002", "S-E-006")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_without_a_queue_a_request_is_served_or_refused(
    start: StartApi, clients_of: Any, path: str, stream: bool
) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=1, max_queued_requests=0)
    clients = clients_of(bench)
    await clients.arrive(1, path, stream=stream)
    await clients.arrive(2, path, stream=stream)
    check_error(clients.answers[2], 503, FULL, code="overloaded")
    assert clients.answers[2].headers["retry-after"] == "1"
    assert counts(bench) == (1, 0)
    await drain(bench)
    assert clients.answers[1].texts() == ["done"]
    assert (await bench.post(path, stream=stream)).texts() == ["done"]
    bench.check_idle()


@pytest.mark.row("S-Q-001", "S-Q-002")
async def test_a_request_is_refused_only_if_no_slot_is_free_and_the_queue_is_full(
    start: StartApi, clients_of: Any
) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=2, max_queued_requests=1)
    clients = clients_of(bench)
    for index in range(5):
        await clients.arrive(index)
    assert sorted(clients.answers) == [3, 4]
    assert sum(counts(bench)) == 3
    await drain(bench)
    assert [clients.answers[index].status for index in range(5)] == [200, 200, 200, 503, 503]
    assert await bench.metric("rejected_requests_total") == 2
    bench.check_idle()


@pytest.mark.row("S-Q-001")
async def test_a_request_that_is_admitted_is_admitted_whole(
    start: StartApi, clients_of: Any
) -> None:
    """D21: limits count sequences, and one large request may go beyond them."""
    bench = await start("done", is_automatic=False, max_running_requests=2, max_queued_requests=1)
    clients = clients_of(bench)
    await clients.arrive(1, prompt=["a", "b", "c"], n=3)
    assert counts(bench) == (2, 7)
    await clients.arrive(2)
    assert clients.answers[2].status == 503
    await drain(bench)
    assert clients.answers[1].texts() == ["done"] * 9
    assert max(len(plan.rows) for plan in bench.runner.plans) == 2
    bench.check_idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_queued_client_that_leaves_makes_room_at_once(
    start: StartApi, clients_of: Any, stream: bool
) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=1, max_queued_requests=1)
    clients = clients_of(bench)
    await clients.arrive(1)
    queued = await clients.arrive(2, stream=stream)
    await clients.arrive(3)
    assert clients.answers[3].status == 503
    queued.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert counts(bench) == (1, 0)
    await clients.arrive(4)
    assert counts(bench) == (1, 1)
    assert 4 not in clients.answers
    await drain(bench)
    assert {index: answer.status for index, answer in clients.answers.items()} == {
        1: 200,
        3: 503,
        4: 200,
    }
    planned = {row.sequence.id for plan in bench.runner.plans for row in plan.rows}
    assert len(planned) == 2, "the client that left had a step"
    bench.check_idle()


async def test_a_running_client_that_leaves_makes_room_at_once(
    start: StartApi, clients_of: Any
) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=1, max_queued_requests=0)
    clients = clients_of(bench)
    running = await clients.arrive(1)
    running.cancel()
    await trio.testing.wait_all_tasks_blocked()
    await clients.arrive(2)
    assert 2 not in clients.answers
    await drain(bench)
    assert clients.answers[2].texts() == ["done"]
    assert await bench.metric("requests_total", endpoint=COMPLETIONS, status="cancelled") == 1
    bench.check_idle()


@pytest.mark.row("S-E-006")
async def test_a_refusal_allocates_nothing(start: StartApi, clients_of: Any) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=1, max_queued_requests=0)
    clients = clients_of(bench)
    await clients.arrive(1)
    batch = bench.engine.batch
    before = (
        batch.pool.statistics(),
        len(batch.streams),
        await bench.metric("prompt_tokens_total"),
    )
    for index in range(2, 30):
        # Too long to be served at all: the full queue is told before it is even tokenized.
        await clients.arrive(index, prompt="a" * 5000, n=100)
        assert clients.answers[index].status == 503
    assert before == (
        batch.pool.statistics(),
        len(batch.streams),
        await bench.metric("prompt_tokens_total"),
    )
    await drain(bench)
    bench.check_idle()


@pytest.mark.row("S-Q-002")
async def test_what_tells_about_the_server_is_never_limited(
    start: StartApi, clients_of: Any
) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=1, max_queued_requests=0)
    await clients_of(bench).arrive(1)
    for path in ("/health", "/v1/models", "/get_model_info", "/v1/loads", "/metrics"):
        assert (await bench.get(path)).status == 200, path
    await drain(bench)


@pytest.mark.row("S-E-006")
@pytest.mark.case(115)
async def test_overflow_while_others_leave_loses_no_one(start: StartApi, clients_of: Any) -> None:
    """Case 115: rejected callers hung for ever."""
    bench = await start("done", is_automatic=False, max_running_requests=2, max_queued_requests=2)
    clients = clients_of(bench)
    left = set()
    for index in range(40):
        scope = await clients.arrive(index, stream=index % 2 == 0, n=1 + index % 2)
        if index % 3 == 0 and index not in clients.answers:
            scope.cancel()
            left.add(index)
        if index % 5 == 0 and bench.device.unfinished:
            await bench.finish_step()
    await drain(bench)
    assert clients.answers.keys() | left == set(range(40))
    statuses = [answer.status for answer in clients.answers.values()]
    assert set(statuses) == {200, 503}
    assert await bench.metric("rejected_requests_total") == statuses.count(503)
    bench.check_idle()


@pytest.mark.row("S-N-013")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_name_is_the_replys_id_and_taken_only_while_the_request_lives(
    start: StartApi, clients_of: Any, path: str, stream: bool
) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=1)
    clients = clients_of(bench)
    name = "job 1 " + "x" * 100
    await clients.arrive(1, path, stream=stream, rid=name)
    await clients.arrive(2, path, rid=name)
    shown = "job 1 " + "x" * 58 + "…"
    message = f"Invalid request: rid '{shown}' is already in use"
    check_error(clients.answers[2], 400, message, code="invalid_value", param="rid")
    # One that waits has its name as well, and another name is another request.
    await clients.arrive(3, path, rid="job 2")
    await clients.arrive(4, path, rid="job 2")
    assert clients.answers[4].status == 400
    await clients.arrive(5, path, rid="job 22")
    await drain(bench)
    replies = clients.answers[1].events() if stream else [clients.answers[1].json()]
    assert {reply["id"] for reply in replies} == {name}
    assert clients.answers[5].json()["id"] == "job 22"
    assert (await bench.post(path, rid=name)).json()["id"] == name
    bench.check_idle()


@pytest.mark.row("S-N-013")
@pytest.mark.case(8)
async def test_the_name_of_a_client_that_left_is_free_at_once(
    start: StartApi, clients_of: Any
) -> None:
    bench = await start("done", is_automatic=False, max_running_requests=1)
    clients = clients_of(bench)
    await clients.arrive(1)
    queued = await clients.arrive(2, rid="mine")
    queued.cancel()
    await trio.testing.wait_all_tasks_blocked()
    await clients.arrive(3, rid="mine")
    assert 3 not in clients.answers
    await drain(bench)
    assert clients.answers[3].json()["id"] == "mine"
