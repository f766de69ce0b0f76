"""How a process starts, drains, dies and exits, in each of the three ways."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
import trio

from tests.process.kit import (
    GRACEFUL_S,
    HERE,
    MAX_WAIT_S,
    STOCK_WAYS,
    WAYS,
    completion,
    metric,
    post,
    start,
    wait_running,
)
from trioserve.testing.http import HttpClient
from trioserve.testing.server_process import ServerProcess, wait_until

MAX_END_S = GRACEFUL_S + MAX_WAIT_S
"""An end in good order, on a machine that does something else too."""
AMPLE_GRACE = ("--graceful-timeout", "30")
"""For a stock Hypercorn and what has to end by itself, however slowly."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def expect_failure(server: ServerProcess, way: str, code: int) -> None:
    """Our own exit code; a stock Hypercorn's parent forgets it and is ended by a signal instead."""
    exit_code = await server.wait_exit(timeout_s=60)
    assert exit_code == (code if way == "serve" else -signal.SIGUSR1), server.output


async def open_long_stream(server: ServerProcess) -> HttpClient:
    client = await server.connect()
    await post(client, "/v1/completions", completion(stream=True, max_tokens=10_000))
    assert (await client.read_head()).status == 200
    await client.read_data()
    return client


async def read_finish(client: HttpClient) -> str:
    """Reads a stream to its end and returns its finish reason."""
    finish = ""
    async for event in client.read_events():
        found = re.search(r'"finish_reason":"(\w+)"', event)
        finish = found[1] if found else finish
    return finish


async def test_requests_get_503_while_the_model_loads(way: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with start(way, env={"FAKE_LOAD_GATE": str(gate)}) as server:
        await server.wait_ready("/health", status=503)
        async with await server.connect() as client:
            reply = await client.post_json("/v1/completions", completion(max_tokens=1))
        assert reply.status == 503
        assert reply.headers["retry-after"] == "5"
        assert reply.json()["error"]["code"] == "model_loading"
        gate.touch()
        await server.wait_ready("/health")
        await server.wait_output("trioserve is ready: http://127.0.0.1:")
        assert str(server.port) in server.output


async def test_a_failed_load_ends_the_process_with_one_clear_line(way: str) -> None:
    with start(way, env={"FAKE_LOAD_ERROR": "the model is not there; look elsewhere"}) as server:
        await expect_failure(server, way, 2)
        assert "trioserve: the model is not there; look elsewhere\n" in server.output
        assert "Traceback" not in server.output


async def test_a_bad_setting_ends_the_process_with_one_clear_line(way: str) -> None:
    with start(way, settings={"page_size": "3"}) as server:
        await expect_failure(server, way, 2)
        assert "--page-size must be a power of two, got 3" in server.output
        assert "Traceback" not in server.output


async def test_a_dead_engine_fails_requests_and_ends_the_process(way: str) -> None:
    with start(way) as server:
        await server.wait_ready("/health")
        open_stream = await open_long_stream(server)
        async with open_stream, await server.connect() as client:
            reply = await client.post_json("/v1/completions", completion(prompt="die!"))
            assert reply.status == 503
            assert reply.json()["error"]["code"] == "engine_dead"
            assert (await server.get("/health")).status == 503
            events = [event async for event in open_stream.read_events()]
            assert '"engine_dead"' in events[-2]
            assert events[-1] == "[DONE]"
            await expect_failure(server, way, 1)
        assert "the device is gone" in server.output


async def test_sigterm_when_idle_exits_cleanly(way: str) -> None:
    with start(way) as server:
        await server.wait_ready("/health")
        async with await server.connect() as idle:
            await idle.get("/health")
            server.send_signal(signal.SIGTERM)
            assert await server.wait_exit(timeout_s=MAX_END_S) == 0
        assert "Traceback" not in server.output


async def test_sigterm_while_loading_exits_cleanly(way: str, tmp_path: Path) -> None:
    with start(way, env={"FAKE_LOAD_GATE": str(tmp_path / "never")}) as server:
        await server.wait_ready("/health", status=503)
        server.send_signal(signal.SIGTERM)
        assert await server.wait_exit(timeout_s=MAX_END_S) == 0
        assert "Traceback" not in server.output


async def test_a_stream_that_ends_within_the_drain_is_whole(way: str) -> None:
    with start(way, flags=AMPLE_GRACE) as server:
        await server.wait_ready("/health")
        async with await server.connect() as client:
            # 200 steps of 5 ms: over long before either limit.
            await post(client, "/v1/completions", completion(stream=True, max_tokens=200))
            await client.read_head()
            server.send_signal(signal.SIGTERM)
            assert await read_finish(client) == "length"
        assert await server.wait_exit(timeout_s=MAX_END_S) == 0


async def test_an_answer_in_progress_is_completed_within_the_drain(way: str) -> None:
    with start(way, flags=AMPLE_GRACE) as server:
        await server.wait_ready("/health")
        async with await server.connect() as client:
            await post(client, "/v1/completions", completion(max_tokens=150))
            await wait_running(server)
            server.send_signal(signal.SIGTERM)
            reply = await client.read_response()
            assert reply.status == 200
            assert reply.json()["usage"]["completion_tokens"] == 150
        assert await server.wait_exit(timeout_s=MAX_END_S) == 0


async def test_serve_answers_503_while_it_drains_and_aborts_what_is_left() -> None:
    with start("serve", settings={"drain_timeout": "4"}) as server:
        await server.wait_ready("/health")
        async with await open_long_stream(server) as stream:
            server.send_signal(signal.SIGTERM)
            await server.wait_ready("/health", status=503)
            async with await server.connect() as client:
                reply = await client.post_json("/v1/completions", completion())
            assert reply.status == 503
            assert reply.json()["error"]["code"] == "shutting_down"
            assert await read_finish(stream) == "abort"
        assert await server.wait_exit(timeout_s=MAX_END_S) == 0


async def test_a_second_signal_ends_serve_at_once() -> None:
    with start("serve", settings={"drain_timeout": "60"}) as server:
        await server.wait_ready("/health")
        async with await open_long_stream(server):
            server.send_signal(signal.SIGINT)
            await server.wait_output("draining")
            server.send_signal(signal.SIGINT)
            assert await server.wait_exit(timeout_s=MAX_END_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_further_signals_after_the_drain_are_no_failure(number: int) -> None:
    with start("serve") as server:
        await server.wait_ready("/health")
        async with await server.connect() as client:
            # Half a body keeps Hypercorn for its grace, when the drain has long been over.
            head = b"POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\n{"
            await client.stream.send_all(head)
            server.send_signal(number)
            await server.wait_output("draining")
            # To the end, so that some come while the interpreter ends.
            with trio.fail_after(MAX_END_S):
                while server.exit_code is None:
                    await trio.sleep(0.02)
                    server.send_signal(number)
            assert server.exit_code == 0, server.output
            assert "Traceback" not in server.output


async def test_a_reader_that_takes_nothing_does_not_keep_the_process(way: str) -> None:
    settings = {"drain_timeout": "1", "stall_timeout": "2"}
    with start(way, settings=settings) as server:
        await server.wait_ready("/health")
        async with await server.connect(receive_buffer_len=4096) as stuck:
            body = completion(stream=True, n=60, max_tokens=10_000)
            await post(stuck, "/v1/completions", body)
            await wait_running(server, 60)
            await wait_paused(server)
            server.send_signal(signal.SIGTERM)
            # serve: drain and a second; a stock Hypercorn: graceful time and stall timeout.
            limit_s = 1 + 1 if way == "serve" else GRACEFUL_S + 2
            assert await server.wait_exit(timeout_s=limit_s + MAX_WAIT_S) == 0


async def wait_paused(server: ServerProcess) -> None:
    """Until no sequence runs: the reader's buffers are full."""

    async def is_paused() -> bool:
        return await metric(server, "num_running_reqs") == 0

    await wait_until(is_paused, timeout_s=60)


@pytest.mark.parametrize("way", STOCK_WAYS)
async def test_sigterm_to_the_worker_itself_ends_hypercorn(way: str) -> None:
    with start(way) as server:
        await server.wait_ready("/health")
        (worker,) = children(server)
        os.kill(worker, signal.SIGTERM)
        assert await server.wait_exit(timeout_s=MAX_END_S) == 0


@pytest.mark.parametrize("way", STOCK_WAYS)
async def test_sigterm_without_a_worker_process_shuts_down_cleanly(way: str) -> None:
    with start(way, flags=("--workers", "0")) as server:
        await server.wait_ready("/health")
        server.send_signal(signal.SIGTERM)
        assert await server.wait_exit(timeout_s=MAX_END_S) == 0
        assert "Traceback" not in server.output


@pytest.mark.parametrize("way", STOCK_WAYS)
async def test_a_second_worker_is_refused_with_the_way_out(way: str) -> None:
    with start(way, flags=("--workers", "2")) as server:
        # Hypercorn's parent ends the first worker and forgets the second one's exit code.
        await server.wait_exit(timeout_s=60)
        assert "replicas behind a router" in server.output


def children(server: ServerProcess) -> list[int]:
    """Worker processes, not multiprocessing's resource tracker."""
    pid = server._process.pid
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in listed
        if "resource_tracker" not in Path(f"/proc/{child}/cmdline").read_text()
    ]


async def test_a_port_in_use_is_one_clear_line_and_code_2() -> None:
    with start("serve") as first:
        await first.wait_ready("/health")
        command = [sys.executable, str(HERE / "fake_app.py"), "serve", "--port", str(first.port)]
        with ServerProcess(command, port=first.port, directory=HERE) as second:
            assert await second.wait_exit(timeout_s=60) == 2
            assert "the port is in use" in second.output
            assert "Traceback" not in second.output
