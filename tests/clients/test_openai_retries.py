"""`openai` for Python comes back after a 503 by itself, because it is told when."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.clients.environments import OPENAI_CLIENTS, Environment
from tests.clients.kit import MODEL, Client, base_url, start_script
from tests.process.kit import completion, metric, post, wait_running
from trioserve.testing.server_process import ServerProcess, wait_until

StartFake = Callable[..., ServerProcess]


async def wait_refused(server: ServerProcess, num_requests: int) -> None:
    async def is_refused() -> bool:
        return await metric(server, "requests_total", status="503") >= num_requests

    await wait_until(is_refused, timeout_s=60)


async def ask_at_once(clients: list[Client]) -> None:
    """Let them ask when all are there: a client's start takes longer than its retries."""
    for client in clients:
        assert await trio.to_thread.run_sync(client.first_answer) == "there"
    for client in clients:
        client.tell()


@pytest.mark.row("S-G-002", "S-M-004")
async def test_clients_that_came_while_the_model_loaded_are_served_after_it(
    start_fake: StartFake, environment: Callable[[str], Environment], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    server = start_fake(env={"FAKE_LOAD_GATE": str(gate)})
    await server.wait_ready("/health", status=503)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                start_script(
                    environment(version), "openai_retries.py", way, base_url(server), MODEL
                )
            )
            for version, way in OPENAI_CLIENTS
        ]
        await ask_at_once(clients)
        # Two retries are the client's own default, so all four are still there.
        await wait_refused(server, len(clients))
        gate.touch()
        answers = [await trio.to_thread.run_sync(client.answer) for client in clients]
    assert answers == [{"num_tokens": 4}] * len(clients)


@asynccontextmanager
async def occupied(server: ServerProcess) -> AsyncIterator[None]:
    """A request holds the server's only slot."""
    async with await server.connect() as client:
        await post(client, "/v1/completions", completion(MODEL, stream=True, max_tokens=16_000))
        await wait_running(server)
        yield


@pytest.mark.row("S-E-006", "S-Q-001", "S-Q-002")
@pytest.mark.parametrize(("version", "way"), OPENAI_CLIENTS)
async def test_a_client_refused_for_a_full_queue_succeeds_when_a_slot_is_free(
    start_fake: StartFake, environment: Callable[[str], Environment], version: str, way: str
) -> None:
    server = start_fake(max_running_requests="1", max_queued_requests="0")
    await server.wait_ready("/health")
    arguments = "openai_retries.py", way, base_url(server), MODEL
    with ExitStack() as stack:
        async with occupied(server):
            hasty = stack.enter_context(start_script(environment(version), *arguments, "0"))
            patient = stack.enter_context(start_script(environment(version), *arguments))
            await ask_at_once([hasty])
            assert await trio.to_thread.run_sync(hasty.answer) == {
                "raised": "InternalServerError",
                "status": 503,
                "code": "overloaded",
                "retry_after": "1",
            }
            await ask_at_once([patient])
            await wait_refused(server, 2)
        assert await trio.to_thread.run_sync(patient.answer) == {"num_tokens": 4}
