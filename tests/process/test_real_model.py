"""The default model over real sockets, in each way to start: the answer and the cancel storm."""

import signal
from collections.abc import AsyncIterator, Iterator
from random import Random

import openai
import pytest
import trio

from tests.process.kit import (
    PATIENT,
    REAL,
    WAYS,
    completion,
    metric,
    num_usable,
    post,
    start,
    wait_all_free,
)
from trioserve.config import DEFAULT_MODEL
from trioserve.testing.server_process import ServerProcess

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
NUM_CANCELS = {"serve": 500, "hypercorn-trio": 100, "hypercorn-asyncio": 100}
NUM_CLIENTS = 16
SURVIVORS = ["The sea", "def main():", "Paris is", "Zwei und zwei"]


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def running(way: str) -> Iterator[ServerProcess]:
    with start(way, REAL) as process:
        yield process


@pytest.fixture
async def server(running: ServerProcess) -> AsyncIterator[ServerProcess]:
    await running.wait_ready("/health", timeout_s=150)
    yield running
    await wait_all_free(running)


@pytest.mark.slow
async def test_the_openai_client_streams_paris_token_by_token(server: ServerProcess) -> None:
    def ask() -> list[str]:
        base_url = f"http://{server.host}:{server.port}/v1"
        with openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=0) as client:
            stream = client.chat.completions.create(
                model=DEFAULT_MODEL, messages=QUESTION, temperature=0, stream=True
            )
            return [content for chunk in stream if (content := chunk.choices[0].delta.content)]

    pieces = await trio.to_thread.run_sync(ask)
    assert "".join(pieces) == "The capital of France is Paris."
    assert len(pieces) > 3, "the answer came in one piece"


@pytest.mark.slow
async def test_a_client_that_leaves_frees_its_pages(server: ServerProcess) -> None:
    async with await server.connect() as client:
        await post(client, "/v1/completions", completion(stream=True))
        await client.read_head()
        for _ in range(5):
            await client.read_data()
        client.close()
        await wait_all_free(server)


async def greedy_text(server: ServerProcess, prompt: str) -> str:
    async with await server.connect() as client:
        reply = await client.post_json("/v1/completions", completion(prompt=prompt, max_tokens=24))
        assert reply.status == 200, reply.body
        return str(reply.json()["choices"][0]["text"])


async def leave_at_random(server: ServerProcess, random: Random) -> None:
    """One request, left before it is sent out, in prefill, in decode or just at its end."""
    body = completion(
        prompt="word " * random.randint(1, 200),
        max_tokens=random.randint(1, 60),
        n=random.choice([1, 1, 2]),
        stream=random.random() < 0.7,
        ignore_eos=True,
    )
    path = "/v1/completions"
    async with await server.connect() as client:
        await post(client, path, body)
        with trio.move_on_after(random.expovariate(1 / 0.15)):
            await client.read_response()
        if random.random() < 0.5:
            client.reset()


@pytest.mark.slow
async def test_random_cancels_leave_the_census_whole_and_survivors_unchanged(
    server: ServerProcess, way: str
) -> None:
    alone = {prompt: await greedy_text(server, prompt) for prompt in SURVIVORS}
    total = await num_usable(server)
    random = Random(20_26)
    num_left = NUM_CANCELS[way]
    is_over = False

    async def leave_again_and_again() -> None:
        nonlocal num_left
        while num_left > 0:
            num_left -= 1
            await leave_at_random(server, random)

    async def survive_again_and_again(prompt: str) -> None:
        while not is_over:
            assert await greedy_text(server, prompt) == alone[prompt]

    async with trio.open_nursery() as survivors:
        for prompt in SURVIVORS:
            survivors.start_soon(survive_again_and_again, prompt)
        async with trio.open_nursery() as leaving:
            for _ in range(NUM_CLIENTS):
                leaving.start_soon(leave_again_and_again)
        is_over = True
    await wait_all_free(server)
    assert await num_usable(server) == total
    assert await metric(server, "aborted_requests_total", reason="cancelled") > NUM_CANCELS[way] / 4
    # One step in flight, so at most one sampled token is dropped for each sequence of a cancel.
    wasted = await metric(server, "wasted_tokens_total")
    assert wasted <= 2 * await metric(server, "aborted_requests_total")
    within_one_step = await metric(server, "cancel_to_free_steps_bucket", le="1.0")
    assert within_one_step == await metric(server, "cancel_to_free_steps_count")


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.0, 1.5, 3.0])
async def test_ctrl_c_while_the_model_loads_exits_cleanly(delay_s: float) -> None:
    # The moments hit the import of torch, the weights and the warm-up, in this order.
    with start("serve", PATIENT) as server:
        await server.wait_ready("/health", status=503, timeout_s=100)
        await trio.sleep(delay_s)
        server.send_signal(signal.SIGINT)
        assert await server.wait_exit(timeout_s=150) == 0
        assert "terminate called" not in server.output
        assert "Traceback" not in server.output
