"""What every way to start has in common: the engine and its watch in one nursery, and its end."""

import atexit
import json
import logging
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
import trio

from trioserve.api.app import create_app
from trioserve.api.open_requests import watch_connections
from trioserve.config import ServerConfig
from trioserve.device.cpu import CpuDevice
from trioserve.engine.engine import Engine
from trioserve.engine.load import load_beside, load_served_model
from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trioserve.api.connection import ScopedApp
    from trioserve.engine.served import ServedEmbedder, ServedModel

log = structlog.get_logger("trioserve")

EXIT_FAILED = 1
EXIT_CONFIG = 2
THREAD_END_S = 5.0
"""How long the end of the process waits for the device's thread; a hung step gets no longer."""


class Server:
    """An engine and the app around it. `run` must enclose every request of the app."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._stop_loading = threading.Event()
        has_beside = config.embedding_model_path is not None
        self.engine = Engine(
            config, self._load, CpuDevice(), load_beside=self._load_beside if has_beside else None
        )
        self.app: ScopedApp = create_app(self.engine)

    def _load(self, config: ServerConfig) -> "ServedModel | ServedEmbedder":
        """On the device's thread; looks at `_stop_loading` now and then."""
        _join_at_exit()
        return load_served_model(config, self.engine.max_running, self._stop_loading)

    def _load_beside(self, config: ServerConfig) -> "ServedEmbedder":
        _join_at_exit()
        return load_beside(config, self._stop_loading)

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """The engine and the watch over its readers, until cancelled; raises what it raised."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.engine.run)
                nursery.start_soon(self._start_grammars)
                nursery.start_soon(
                    partial(
                        watch_connections,
                        self.app.open_requests,
                        stall_timeout_s=self.config.stall_timeout,
                    )
                )
                task_status.started()
        finally:
            self._stop_loading.set()
            # Hypercorn shields its writes: a reader that takes nothing would keep us here.
            self.app.open_requests.end_pending_writes()

    async def _start_grammars(self) -> None:
        """Have the process ready that compiles grammars, once there is a model to compile for."""
        await self.engine.ready.wait()
        if self.engine.directory.primary.info.is_generation:
            await self.engine.grammars.start()

    async def announce(self, find_url: "Callable[[], str]") -> None:
        """Wait until the models serve, then say so in one line, with a command to paste."""
        await self.engine.ready.wait()
        say(f"trioserve is ready: {announcement(self.engine, find_url())}")


def announcement(engine: Engine, url: str) -> str:
    """What is served, and a command to paste."""
    first, *others = engine.directory.models
    name, info = first.names[0], first.info
    figures = [f"{url} model={name} dtype={info.dtype}"]
    body: dict[str, Any] = {"model": name}
    if info.is_generation:
        path = "/v1/chat/completions"
        body["messages"] = [{"role": "user", "content": "What is the capital of France?"}]
        model = engine.model
        figures.append(f"pages={model.num_pages} tokens={model.num_pages * model.page_size}")
    else:
        path = "/v1/embeddings"
        body["input"] = "What is the capital of France?"
        figures.append(f"dimensions={engine.embedding_batch.model.size}")
    key = "-H 'Authorization: Bearer YOUR_KEY' " if engine.config.api_key else ""
    figures += [f"embedding_model={other.names[0]}" for other in others]
    return (
        f"{' '.join(figures)} — try: curl {url}{path} "
        f"{key}-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )


def _join_at_exit() -> None:
    # The interpreter's end kills the device's daemon thread. Where that is inside torch, or frees
    # the model, C++ aborts the process: code 134 for a Ctrl-C while the model loads.
    atexit.register(threading.current_thread().join, THREAD_END_S)


def say(line: str) -> None:
    """One line for the person who started the server, whatever the log level."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def report_end(error: BaseException) -> int:
    """Say in one line why the process ends, and return its exit code.

    A setting or model that cannot be used is the user's to mend and gets no traceback.
    """
    reasons = list(_leaves(error))
    for reason in reasons:
        if isinstance(reason, ConfigError):
            say(f"trioserve: {reason}")
            return EXIT_CONFIG
    log.critical("the engine failed; the process ends", exc_info=reasons[0])
    logging.shutdown()
    return EXIT_FAILED


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
