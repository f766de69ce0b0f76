"""Real server processes in each of the three ways, and what tests ask of them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.parser import text_string_to_metric_families

from trioserve.testing.http import HttpClient
from trioserve.testing.server_process import ServerProcess, free_port, wait_until

HERE = Path(__file__).parent
WAYS = ("serve", "hypercorn-trio", "hypercorn-asyncio")
STOCK_WAYS = WAYS[1:]
GRACEFUL_S = 2

FAKE = "fake_app:app"
REAL = "trioserve.app"
PATIENT = "patient_app"
"""The real one at its end; only for `serve`."""

MAX_WAIT_S = 10.0
"""Against a hang, and on a machine that does something else too: a server that notices takes a
fraction of a second, and what nobody ends goes on for longer than this."""


def start(
    way: str,
    application: str = FAKE,
    *,
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    flags: tuple[str, ...] = (),
) -> ServerProcess:
    """`settings` are trioserve's own, as variables; `flags` belong to a stock Hypercorn."""
    variables = {f"TRIOSERVE_{name.upper()}": value for name, value in (settings or {}).items()}
    # The fake is imported by name, in Hypercorn's spawned workers too.
    search_path = {"PYTHONPATH": str(HERE)} if application == FAKE else {}
    environment = {**search_path, **variables, **(env or {})}
    if way == "serve":
        port = free_port()
        scripts = {FAKE: [str(HERE / "fake_app.py")], PATIENT: [str(HERE / "patient_app.py")]}
        program = scripts.get(application, ["-m", "trioserve"])
        command = [sys.executable, *program, "serve", "--port", str(port)]
        return ServerProcess(command, port=port, env=environment, directory=HERE)
    worker = way.removeprefix("hypercorn-")
    return ServerProcess.hypercorn(
        application,
        *("--worker-class", worker, "--graceful-timeout", str(GRACEFUL_S)),
        *flags,
        env=environment,
        directory=HERE,
    )


async def metric(server: ServerProcess, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    text = (await server.get("/metrics")).body.decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"trioserve_{name}" and labels.items() <= sample.labels.items()
    )


async def num_usable(server: ServerProcess) -> float:
    """Pages that a new request could have: free, or cached and in nobody's use."""
    return sum([await metric(server, "pages", state=state) for state in ("free", "cached")])


async def wait_all_free(server: ServerProcess, *, timeout_s: float = MAX_WAIT_S) -> None:
    """Until the census is whole: every page free or cached, nothing running or waiting."""

    async def is_free() -> bool:
        busy = [await metric(server, name) for name in ("num_running_reqs", "num_queue_reqs")]
        return not any(busy) and await num_usable(server) == await metric(server, "pages_total")

    await wait_until(is_free, timeout_s=timeout_s)


async def wait_running(server: ServerProcess, num_sequences: int = 1) -> None:
    """Until that many sequences are in the batch, or have been and hold their pages still.

    Where nobody reads, sequences leave the batch again before they are asked for.
    """

    async def is_running() -> bool:
        return await metric(server, "pages", state="leased") >= num_sequences

    await wait_until(is_running, timeout_s=MAX_WAIT_S)


async def post(client: HttpClient, path: str, body: Mapping[str, Any]) -> None:
    """Send a JSON request without waiting for its answer."""
    await client.send("POST", path, body=orjson.dumps(body))


def completion(model: str = "SmolLM2-135M-Instruct", **fields: Any) -> dict[str, Any]:
    """The body of a completion that runs until somebody ends it."""
    return {
        "model": model,
        "prompt": "Once upon a time",
        "max_tokens": 4000,
        "ignore_eos": True,
        "temperature": 0,
        **fields,
    }
