"""Running a foreign client against a server process, and what is asked of the server afterwards."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trio

from tests.clients.environments import Environment
from tests.process.kit import metric
from trioserve.testing.server_process import ServerProcess, free_port, wait_until

HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios"

MODEL = "org/name"
EMBEDDING_MODEL = "embedding/name"
"""Served names: with a slash, as in the documented examples."""

_MAX_START_S = 150.0
"""Against a hang: on free cores a server takes seconds."""
_MAX_WAIT_S = 60.0
"""Against a hang: a server that is left to itself takes a step."""

_OWN_VARIABLES = ("OPENAI_", "LLM_", "LANGCHAIN_", "LANGSMITH_", "NODE_OPTIONS", "PYTHON")
"""What these begin with would change a client that is to be tested as it comes."""


def base_url(server: ServerProcess) -> str:
    return f"http://{server.host}:{server.port}/v1"


def client_variables(**more: str) -> dict[str, str]:
    """The environment of a client's process: this one's without what would lead it elsewhere."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OWN_VARIABLES)}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**kept, **offline, "NO_PROXY": "*", "no_proxy": "*", **more}


def quick_server(**settings: str) -> ServerProcess:
    """A server whose model costs nothing and whose limits are small; see fake_app.py."""
    settings = {"served_model_name": MODEL, **settings}
    port = free_port()
    command = [sys.executable, str(HERE / "fake_app.py"), "serve", "--port", str(port)]
    variables = {f"TRIOSERVE_{name.upper()}": value for name, value in settings.items()}
    return ServerProcess(command, port=port, env=variables)


class Client:
    """A client in a process of its own; leaving the context kills what is left of it."""

    def __init__(
        self, *command: str | Path, cwd: Path | None = None, variables: Mapping[str, str] = {}
    ) -> None:
        self.command = [str(part) for part in command]
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=client_variables(**variables),
            cwd=cwd,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def first_answer(self) -> Any:
        """The JSON of its first line; the client goes on, and keeps what it has open."""
        assert self._process.stdout is not None
        # A line or the end; against a hang there is the limit on every test.
        line = self._process.stdout.readline()
        return json.loads(line or self.output())

    def tell(self) -> None:
        """A line of input, for which a client may wait."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def output(self, *, timeout_s: float = 150.0) -> str:
        """What it printed, once it has ended well. It reads the end of its input."""
        try:
            output, errors = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, errors = self._process.communicate()
            raise AssertionError(
                f"{self.command} did not end within {timeout_s:g} s:\n{output}\n{errors}"
            ) from None
        code = self._process.returncode
        assert code == 0, f"{self.command} ended with {code}:\n{output}\n{errors}"
        return output

    def answer(self, *, timeout_s: float = 150.0) -> Any:
        """The JSON that it printed."""
        return json.loads(self.output(timeout_s=timeout_s))


def run(
    *command: str | Path,
    cwd: Path | None = None,
    timeout_s: float = 150.0,
    variables: Mapping[str, str] = {},
) -> str:
    """What a command printed, after it has ended well."""
    with Client(*command, cwd=cwd, variables=variables) as client:
        return client.output(timeout_s=timeout_s)


def start_script(environment: Environment, name: str, *arguments: str) -> Client:
    """A script of scenarios/ with these arguments, which prints its answer as JSON."""
    return Client(environment.python, SCENARIOS / name, *arguments)


def run_script(
    environment: Environment, name: str, *arguments: str, timeout_s: float = 150.0
) -> Any:
    with start_script(environment, name, *arguments) as client:
        return client.answer(timeout_s=timeout_s)


def wait_serving(server: ServerProcess) -> None:
    trio.run(lambda: server.wait_ready("/health", timeout_s=_MAX_START_S))


def read_metric(server: ServerProcess, name: str, **labels: str) -> float:
    return trio.run(lambda: metric(server, name, **labels))


def wait_metric(server: ServerProcess, name: str, least: float, **labels: str) -> None:
    """Until a metric has at least this value."""

    async def is_reached() -> bool:
        return await metric(server, name, **labels) >= least

    trio.run(lambda: wait_until(is_reached, timeout_s=_MAX_WAIT_S))


def wait_idle(server: ServerProcess) -> None:
    """Until no request holds a page, and a router that asks would hear of none.

    Cached pages may stay: another request can use them.
    """

    async def is_idle() -> bool:
        loads = (await server.get("/v1/loads")).json()["loads"]
        num_requests = sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)
        return num_requests == 0 and await metric(server, "pages", state="leased") == 0

    trio.run(lambda: wait_until(is_idle, timeout_s=_MAX_WAIT_S))


def assert_left(
    server: ServerProcess, *starts: Callable[[], Client], is_told_to: bool = False
) -> list[Any]:
    """What clients answer that give up a request each, after which the server must be idle.

    They run at once. With `is_told_to` they are told to leave when the server computes for them;
    else they know by themselves. They must still run then: the end of a process would close its
    connections anyway.
    """
    left = {"name": "aborted_requests_total", "reason": "cancelled"}
    before = read_metric(server, **left)
    with ExitStack() as stack:
        clients = [stack.enter_context(start()) for start in starts]
        if is_told_to:
            wait_metric(server, "num_running_reqs", least=len(clients))
            for client in clients:
                client.tell()
        answers = [client.first_answer() for client in clients]
        wait_metric(server, least=before + len(clients), **left)
        wait_idle(server)
        assert all(client.output() for client in clients), "one had ended before"
    return answers
