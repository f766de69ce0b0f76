"""Structured output in each way to start: the process that compiles goes with the server."""

import re
import signal
from pathlib import Path

import pytest
import trio

from tests.process.kit import MAX_WAIT_S, WAYS, completion, start, wait_all_free
from trioserve.testing.server_process import wait_until

WORKER = "trioserve.grammar.worker"
MAX_COMPILE_S = 60.0
"""Against a hang: the process imports for seconds, on a busy machine for longer."""


def workers(session: int) -> set[int]:
    """Processes of a server's session that compile grammars."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            its_session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
        except OSError:
            continue
        if its_session == session and WORKER in command:
            found.add(int(process.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_a_grammar_is_kept_to_and_its_process_ends_with_the_server(way: str) -> None:
    with start(way) as server:
        await server.wait_ready("/health")
        body = completion(regex="[0-9]{4}-[0-9]{2}")
        with trio.fail_after(MAX_COMPILE_S):
            async with await server.connect() as client:
                answer = await client.post_json("/v1/completions", body)
        assert answer.status == 200, answer.body
        (choice,) = answer.json()["choices"]
        assert re.fullmatch("[0-9]{4}-[0-9]{2}", choice["text"])
        assert choice["finish_reason"] == "stop"
        await wait_all_free(server)
        session = server._process.pid
        assert workers(session)
        server.send_signal(signal.SIGTERM)
        assert await server.wait_exit(timeout_s=MAX_WAIT_S) == 0

        async def is_gone() -> bool:
            return not workers(session)

        await wait_until(is_gone, timeout_s=MAX_WAIT_S)
