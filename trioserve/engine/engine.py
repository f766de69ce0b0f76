"""`Engine`: loads the model, admits requests, drains, and notices when the driver is dead."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from math import inf

import structlog
import trio

from trioserve.config import ServerConfig
from trioserve.device.base import Device
from trioserve.engine.batch import Batch
from trioserve.engine.driver import Driver
from trioserve.engine.request import GenerateRequest
from trioserve.engine.served import ServedModel
from trioserve.engine.statistics import EngineStatistics
from trioserve.engine.stream import RequestStream
from trioserve.errors import EngineDead, RequestError, Unavailable

log = structlog.get_logger("trioserve")

DEFAULT_MAX_RUNNING = 64
SLOW_STEP_S = 30.0
"""A step in flight for longer is no progress, as far as a load balancer is concerned."""
DEATH_NOTICE_S = 1.0
"""How long a dead engine still answers 503 before its error ends the process."""


class EngineState(StrEnum):
    """What the engine can do now."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


_REFUSALS = {
    EngineState.LOADING: ("The model is loading.", "model_loading", 5),
    EngineState.DRAINING: ("The server is shutting down.", "shutting_down", 1),
    EngineState.DEAD: ("The engine has failed; the server is exiting.", "engine_dead", 1),
}


class Engine:
    """One model on one device. `run` lives in a nursery that encloses every request's.

    `open_stream` is the only way in for a request and its scope the only way out.
    """

    def __init__(
        self,
        config: ServerConfig,
        load: Callable[[ServerConfig], ServedModel],
        device: Device,
        *,
        check_after_steps: bool = False,
    ) -> None:
        self.config = config
        self.statistics = EngineStatistics()
        self.max_running = config.max_running_requests or DEFAULT_MAX_RUNNING
        self.ready = trio.Event()
        self._state = EngineState.LOADING
        self._load = load
        self._device = device
        self._batch: Batch | None = None
        self._driver: Driver | None = None
        self._check_after_steps = check_after_steps
        self._closed_stream = trio.Event()

    @property
    def state(self) -> EngineState:
        """What the engine can do now."""
        return self._state

    @property
    def model(self) -> ServedModel:
        """The model served. Raises Unavailable until it is loaded."""
        return self._loaded().model

    @property
    def batch(self) -> Batch:
        """The serving state, for reading. Raises Unavailable until the model is loaded."""
        return self._loaded()

    def check_serving(self) -> None:
        """Raise Unavailable unless new work is taken now."""
        if self._state is not EngineState.READY:
            message, code, retry_after_s = _REFUSALS[self._state]
            raise Unavailable(message, code=code, retry_after_s=retry_after_s)

    def check_healthy(self) -> None:
        """Raise Unavailable unless the engine serves and its loop makes progress or is idle."""
        self.check_serving()
        since = self._driver.waiting_since if self._driver is not None else None
        if since is not None and trio.current_time() - since > SLOW_STEP_S:
            raise Unavailable(
                f"No step has finished for {trio.current_time() - since:.0f} s.", code="engine_dead"
            )

    def check_queue(self) -> None:
        """Raise Unavailable if the queue is full. Cheap: called before a prompt is tokenized."""
        self.check_serving()
        limit = self.config.max_queued_requests
        if limit is None:
            return
        num_over = self.batch.scheduler.num_over_slots
        if num_over is not None and num_over >= limit:
            self.statistics.rejected.inc()
            raise Unavailable("The request queue is full.", code="overloaded")

    @contextmanager
    def open_stream(self, request: GenerateRequest) -> Iterator[RequestStream]:
        """Admit the request for as long as the context lasts; leaving it aborts what is left.

        Neither entering nor leaving is a checkpoint, so admission is atomic with the check of the
        queue, and leaving works in a cancelled task. Raises Unavailable, or RequestError for a
        request that can never fit.
        """
        self.check_queue()
        batch = self.batch
        self._check_fits(request)
        now = trio.current_time()
        stream = RequestStream(
            request=request,
            deadline=inf if request.timeout_s is None else now + request.timeout_s,
            on_taken=self._wake,
            on_deadline=lambda late: self.abort(late, "timeout"),
            opened_at=now,
        )
        batch.add(stream)
        self._wake()
        try:
            yield stream
        finally:
            batch.close(stream)
            # An abort makes room: what waited for pages or for a slot can be planned.
            self._wake()
            self._closed_stream.set()

    def abort(self, stream: RequestStream, reason: str) -> None:
        """End the request's open choices with `abort`; its reader gets them. Not a checkpoint."""
        self.batch.abort(stream, reason)
        self._wake()

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Load the model, then drive it until cancelled.

        A failure, of the load or of the driver, is seen by every open request and by `/health` for
        a second and is then raised, which ends the process.
        """
        task_status.started()
        try:
            model = await self._device.run(lambda: self._load(self.config))
            self._batch = Batch(model, self.max_running, self.statistics, trio.current_time)
            self._driver = Driver(self._batch, self._device, self._check_after_steps)
            if self._state is EngineState.LOADING:
                self._state = EngineState.READY
            self.ready.set()
            await self._driver.run()
        except Exception as error:
            self._die(error)
            try:
                await trio.sleep(DEATH_NOTICE_S)
            finally:
                # Also when cancelled meanwhile: the end of a drain must not pass for a good end.
                raise error
        finally:
            self._device.close()

    async def drain(self, timeout_s: float) -> None:
        """Take no new work; let open requests end, at most `timeout_s`; abort the rest.

        Returns when every stream was closed by its request, or half a second after the abort: a
        reader that takes nothing is no reason to stay, and its pages are free already.
        """
        if self._state in (EngineState.LOADING, EngineState.READY):
            self._state = EngineState.DRAINING
        with trio.move_on_after(timeout_s):
            await self._wait_closed()
            return
        for stream in tuple(self._open_streams()):
            self.abort(stream, "shutdown")
        with trio.move_on_after(0.5):
            await self._wait_closed()

    async def _wait_closed(self) -> None:
        while self._open_streams():
            self._closed_stream = trio.Event()
            await self._closed_stream.wait()

    def _open_streams(self) -> set[RequestStream]:
        return self._batch.streams if self._batch is not None else set()

    def _die(self, error: Exception) -> None:
        self._state = EngineState.DEAD
        for stream in tuple(self._open_streams()):
            self.batch.fail(stream, EngineDead(str(error)), "failed")

    def _check_fits(self, request: GenerateRequest) -> None:
        capacity = self.batch.scheduler.capacity_tokens()
        for generation in request.generations:
            num_tokens = len(generation.prompt_ids) + generation.max_tokens
            # The last token is never fed back, so it needs no slot.
            if num_tokens - (generation.max_tokens > 0) > capacity:
                raise RequestError(
                    f"This request needs {num_tokens} tokens, which exceeds the "
                    f"cache capacity of {capacity} tokens.",
                    param=request.limit_param,
                    code="context_length_exceeded",
                )

    def _wake(self) -> None:
        if self._driver is not None:
            self._driver.wake()

    def _loaded(self) -> Batch:
        if self._batch is None:
            message, code, retry_after_s = _REFUSALS[EngineState.LOADING]
            raise Unavailable(message, code=code, retry_after_s=retry_after_s)
        return self._batch
