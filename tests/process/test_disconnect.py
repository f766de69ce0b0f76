"""A client that leaves, over real sockets and in each way to start: its pages are free at once.

The model costs nothing, so what is measured here is detection, not speed. What nobody ends goes on
for 20 s.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio

from tests.process.kit import WAYS, completion, metric, post, start, wait_all_free, wait_running
from trioserve.testing.server_process import ServerProcess

MAX_NOTICE_S = 1.0
ATTEMPTS = 3
"""A machine that does something else too may be late now and then."""
PATHS = {
    "/v1/completions": completion(),
    "/v1/chat/completions": completion(),
}


@pytest.fixture(scope="module", params=WAYS)
def running(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with start(request.param, settings={"stall_timeout": "1"}) as process:
        yield process


@pytest.fixture
async def server(running: ServerProcess) -> AsyncIterator[ServerProcess]:
    await running.wait_ready("/health")
    yield running
    await wait_all_free(running)
    assert running.exit_code is None, running.output


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_streamed", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("how", ["close", "reset", "half close", "pipeline"])
async def test_a_client_that_leaves_is_noticed_within_a_second(
    server: ServerProcess, path: str, is_streamed: bool, how: str
) -> None:
    body = {**PATHS[path], "stream": is_streamed}
    for _ in range(ATTEMPTS):
        if await seconds_to_notice(server, path, body, how) <= MAX_NOTICE_S:
            return
    pytest.fail(f"noticed later than after {MAX_NOTICE_S:g} s, {ATTEMPTS} times")


async def seconds_to_notice(
    server: ServerProcess, path: str, body: dict[str, Any], how: str
) -> float:
    """From when a client leaves in that way until nothing is held for it."""
    aborted = await metric(server, "aborted_requests_total")
    async with await server.connect() as client:
        await post(client, path, body)
        await wait_running(server)
        if body["stream"]:
            await client.read_head()
            for _ in range(5):
                await client.read_data()
        left_at = trio.current_time()
        match how:
            case "close":
                client.close()
            case "reset":
                client.reset()
            case "half close":
                await client.half_close()
            case "pipeline":
                # Bytes behind the request park Hypercorn's reader.
                await client.stream.send_all(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
                client.close()
        await wait_all_free(server)
        took_s = trio.current_time() - left_at
    assert await metric(server, "aborted_requests_total") == aborted + 1
    return took_s


async def test_a_disconnect_during_prefill_is_noticed_before_the_first_token(
    server: ServerProcess,
) -> None:
    generated = await metric(server, "generation_tokens_total")
    # 16,000 tokens in chunks of 64 with 5 ms each take over a second.
    prompt = [1] * 16_000
    async with await server.connect() as client:
        await post(client, "/v1/completions", completion(prompt=prompt, max_tokens=5))
        await wait_running(server)
        client.close()
        await wait_all_free(server)
    assert await metric(server, "generation_tokens_total") == generated


@pytest.mark.case(73)
async def test_a_reader_that_takes_nothing_is_aborted_after_the_stall_timeout(
    server: ServerProcess,
) -> None:
    # Many choices, so that events outgrow the socket's buffers quickly.
    body = completion(stream=True, n=60, max_tokens=10_000)
    async with await server.connect(receive_buffer_len=4096) as client:
        await post(client, "/v1/completions", body)
        await wait_running(server, 60)
        # The others go on meanwhile.
        async with await server.connect() as other:
            reply = await other.post_json("/v1/completions", completion(max_tokens=50))
            assert reply.json()["usage"]["completion_tokens"] == 50
        await wait_all_free(server, timeout_s=60)
        await client.read_until_closed()


async def test_every_child_of_a_request_ends_with_its_client(server: ServerProcess) -> None:
    body = completion(prompt=["abc"] * 16, n=4, stream=True)
    async with await server.connect() as client:
        await post(client, "/v1/completions", body)
        await wait_running(server, 64)
        client.close()
        await wait_all_free(server)


async def test_streams_read_to_the_end_count_no_abort(server: ServerProcess) -> None:
    aborted = await metric(server, "aborted_requests_total")
    for _ in range(20):
        async with await server.connect() as client:
            await post(client, "/v1/completions", completion(max_tokens=2, stream=True))
            await client.read_head()
            events = [event async for event in client.read_events()]
            assert events[-1] == "[DONE]"
    assert await metric(server, "aborted_requests_total") == aborted
