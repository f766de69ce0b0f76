"""`Engine`: loads the models, admits requests, drains, and notices when the driver is dead."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import structlog
import trio

from trioserve.config import ServerConfig
from trioserve.device.base import Device
from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.batch import Batch
from trioserve.engine.checks import check_fits, check_room
from trioserve.engine.driver import Driver
from trioserve.engine.embedding import EmbeddingRequest, OpenEmbedding
from trioserve.engine.embedding_batch import EmbeddingBatch
from trioserve.engine.loading import connect_tiers, load_models, open_storage
from trioserve.engine.open_work import OpenWork
from trioserve.engine.request import GenerateRequest
from trioserve.engine.served import ModelDirectory, ServedEmbedder, ServedModel
from trioserve.engine.state import EngineState, refusal
from trioserve.engine.statistics import EngineStatistics
from trioserve.engine.stream import RequestStream
from trioserve.engine.tier_worker import TierWorker, run_beside
from trioserve.errors import EngineDead, Unavailable
from trioserve.grammar.compiler import GrammarCompiler
from trioserve.grammar.vocabulary import Vocabulary

log = structlog.get_logger("trioserve")

DEFAULT_MAX_RUNNING = 64
SLOW_STEP_S = 30.0
"""A step in flight for longer is no progress, as far as a load balancer is concerned."""
DEATH_NOTICE_S = 1.0
"""How long a dead engine still answers 503 before its error ends the process."""


class Engine:
    """One model on one device, and perhaps an embedding model beside it.

    `run` lives in a nursery that encloses every request's. `open_stream` and `open_embedding` are
    the only ways in for a request and their scopes the only ways out.
    """

    def __init__(
        self,
        config: ServerConfig,
        load: Callable[[ServerConfig], ServedModel | ServedEmbedder],
        device: Device,
        *,
        load_beside: Callable[[ServerConfig], ServedEmbedder] | None = None,
        check_after_steps: bool = False,
    ) -> None:
        """`load` yields the model of `--model-path`, `load_beside` that beside it, if any."""
        self.config = config
        self.statistics = EngineStatistics()
        self.embedding_statistics = (
            EngineStatistics() if load_beside is not None else self.statistics
        )
        """Of the embedding model: apart if it is beside another one, whose figures differ."""
        self.max_running = config.max_running_requests or DEFAULT_MAX_RUNNING
        self.ready = trio.Event()
        self.grammars = GrammarCompiler(
            lambda: Vocabulary.of(self.model.tokenizer, self.model.info.vocab_size),
            config.grammar_timeout,
            max_spaces=config.grammar_max_spaces,
        )
        self._state = EngineState.LOADING
        self._load = load
        self._load_beside = load_beside
        self._device = device
        self._batch: Batch | None = None
        self._embedding_batch: EmbeddingBatch | None = None
        self._driver: Driver | None = None
        self._tier_worker: TierWorker | None = None
        self._directory: ModelDirectory | None = None
        self._check_after_steps = check_after_steps
        self._open = OpenWork()

    @property
    def state(self) -> EngineState:
        """What the engine can do now."""
        return self._state

    @property
    def directory(self) -> ModelDirectory:
        """The models by name. Raises Unavailable until they are loaded."""
        if self._directory is None:
            raise refusal(EngineState.LOADING)
        return self._directory

    @property
    def model(self) -> ServedModel:
        """The model that generates. See `batch`."""
        return self.batch.model

    @property
    def batch(self) -> Batch:
        """The serving state of the model that generates, for reading.

        Raises Unavailable until it is loaded; only to be asked where `directory` has such a model.
        """
        self._check_loaded()
        assert self._batch is not None, "no model that generates is served"
        return self._batch

    @property
    def embedding_batch(self) -> EmbeddingBatch:
        """The serving state of the embedding model, like `batch`."""
        self._check_loaded()
        assert self._embedding_batch is not None, "no embedding model is served"
        return self._embedding_batch

    @property
    def batches(self) -> tuple[Batch | EmbeddingBatch, ...]:
        """The serving state of every model, the server's own first; empty until loaded."""
        return tuple(batch for batch in (self._batch, self._embedding_batch) if batch is not None)

    def check_serving(self) -> None:
        """Raise Unavailable unless new work is taken now."""
        if self._state is not EngineState.READY:
            raise refusal(self._state)

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
        check_room(limit, self.batch.scheduler.num_over_slots, self.statistics)

    def check_embedding_queue(self) -> None:
        """The same for the embedding model, which has a queue of its own."""
        self.check_serving()
        limit = self.config.max_queued_requests
        check_room(limit, self.embedding_batch.num_over_slots, self.embedding_statistics)

    @contextmanager
    def open_stream(self, request: GenerateRequest) -> Iterator[RequestStream]:
        """Admit the request for as long as the context lasts; leaving it aborts what is left.

        Neither entering nor leaving is a checkpoint, so admission is atomic with the check of the
        queue, and leaving works in a cancelled task. Raises Unavailable, or RequestError for a
        request that can never fit.
        """
        self.check_queue()
        batch = self.batch
        check_fits(request, batch.scheduler.capacity_tokens())
        now = trio.current_time()
        stream = RequestStream(
            request=request,
            deadline=inf if request.timeout_s is None else now + request.timeout_s,
            on_taken=self._wake,
            on_deadline=lambda late: self.abort(late, AbortReason.TIMEOUT),
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
            self._open.note_closed()

    @contextmanager
    def open_embedding(self, request: EmbeddingRequest) -> Iterator[OpenEmbedding]:
        """The same for texts to embed."""
        self.check_embedding_queue()
        batch = self.embedding_batch
        now = trio.current_time()
        opened = OpenEmbedding(
            request=request,
            deadline=inf if request.timeout_s is None else now + request.timeout_s,
            on_deadline=lambda late: self.abort(late, AbortReason.TIMEOUT),
            opened_at=now,
        )
        batch.add(opened)
        self._wake()
        try:
            yield opened
        finally:
            batch.close(opened)
            self._wake()
            self._open.note_closed()

    def abort(self, request: RequestStream | OpenEmbedding, reason: AbortReason) -> None:
        """End what is left of the request; its reader is told. Not a checkpoint.

        Open choices end with `abort`; vectors that are not all there end with an error.
        """
        if isinstance(request, OpenEmbedding):
            self.embedding_batch.abort(request, reason)
        else:
            self.batch.abort(request, reason)
        self._wake()

    async def flush_cache(self) -> bool:
        """Forget all cached prefixes; false, and nothing is done, while a model has work.

        A checkpoint where there are tiers below the pool. Raises Unavailable unless the engine
        serves.
        """
        self.check_serving()
        embedding = self._embedding_batch
        if embedding is not None and not embedding.is_idle:
            return False
        if self._batch is None:
            return True
        is_flushed = self._batch.flush_prefixes()
        if is_flushed and self._tier_worker is not None:
            await self._tier_worker.forget()
        return is_flushed

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Load the models, then drive them until cancelled.

        A failure, of the load or of the driver, is seen by every open request and by `/health` for
        a second and is then raised, which ends the process.
        """
        task_status.started()
        try:
            await self._load_models()
            self._driver = Driver(self.batches, self._device, self._check_after_steps)
            if self._state is EngineState.LOADING:
                self._state = EngineState.READY
            self.ready.set()
            await run_beside(self._tier_worker, self._driver.run, on_failure=self._die)
        except Exception as error:
            self._die(error)
            try:
                await trio.sleep(DEATH_NOTICE_S)
            finally:
                # Also when cancelled meanwhile: the end of a drain must not pass for a good end.
                raise error
        finally:
            self.grammars.close()
            self._device.close()

    async def drain(self, timeout_s: float) -> None:
        """Take no new work; let open requests end, at most `timeout_s`; abort the rest.

        Returns when every stream was closed by its request, or half a second after the abort: a
        reader that takes nothing is no reason to stay, and its pages are free already.
        """
        if self._state in (EngineState.LOADING, EngineState.READY):
            self._state = EngineState.DRAINING
        with trio.move_on_after(timeout_s):
            await self._open.wait_none()
            return
        for request in self._open.requests():
            self.abort(request, AbortReason.SHUTDOWN)
        with trio.move_on_after(0.5):
            await self._open.wait_none()

    async def _load_models(self) -> None:
        config = self.config
        # First: a directory that cannot be had is told before a model takes its time.
        storage = None
        if config.cache_storage is not None:
            storage = await trio.to_thread.run_sync(open_storage, config)
        try:
            served = await load_models(config, self._load, self._load_beside, self._device.run)
            if served.model is not None:
                self._open.batch = Batch(
                    served.model, self.max_running, self.statistics, trio.current_time
                )
            tiers = connect_tiers(config, self._open.batch, storage)
        except BaseException:
            if storage is not None:
                storage.close()
            raise
        if tiers is not None:
            self._tier_worker = TierWorker(tiers, self._wake)
        if served.embedder is not None:
            self._open.embedding_batch = EmbeddingBatch(
                served.embedder, self.max_running, self.embedding_statistics, trio.current_time
            )
        self._batch, self._embedding_batch = self._open.batch, self._open.embedding_batch
        self._directory = served.directory

    def _die(self, error: Exception) -> None:
        self._state = EngineState.DEAD
        self._open.fail(EngineDead(str(error)))

    def _check_loaded(self) -> None:
        if not self.batches:
            raise refusal(EngineState.LOADING)

    def _wake(self) -> None:
        if self._driver is not None:
            self._driver.wake()
