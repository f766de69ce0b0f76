"""`GrammarCompiler`: constraints to compiled grammars, in child processes, bounded in every way."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import structlog
import trio
from attrs import define, field

from trioserve.errors import RequestFailed, Unavailable
from trioserve.grammar.cache import GrammarCache
from trioserve.grammar.compiled import CompiledGrammar
from trioserve.grammar.constraint import Constraint
from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.job import CompileJob
from trioserve.grammar.process import WorkerLost, WorkerProcess
from trioserve.grammar.vocabulary import Vocabulary

log = structlog.get_logger("trioserve")

MAX_CONCURRENT = 2
MAX_SOURCE_BYTES = 256 * 1024
STARVED_SHARE = 0.05
"""Of the time that a compilation may take: one that had less of a processor says nothing about its
grammar."""
_NUM_TRIES = 2


class Worker(Protocol):
    """What compiles; `WorkerProcess`, or a test's."""

    is_lost: bool

    async def compile(self, job: CompileJob) -> bytes:
        """See WorkerProcess.compile."""

    def close(self) -> None:
        """See WorkerProcess.close."""


StartWorker = Callable[[Vocabulary], Awaitable[Worker]]


@define(eq=False)
class GrammarCompiler:
    """One for a model; its methods are called by requests, on one thread.

    A request that is cancelled takes its compilation with it. At most `MAX_CONCURRENT` run at once,
    each for at most `timeout_s`; the wait for a place is not counted.
    """

    make_vocabulary: Callable[[], Vocabulary]
    """Of the model; called in a thread."""
    timeout_s: float
    start_worker: StartWorker = WorkerProcess.start
    max_spaces: int = 1
    """In a row, where JSON has whitespace."""
    cache: GrammarCache = field(init=False, factory=GrammarCache)
    num_compiled: int = field(init=False, default=0)
    _places: trio.CapacityLimiter = field(
        init=False, factory=partial(trio.CapacityLimiter, MAX_CONCURRENT)
    )
    _starting: trio.Lock = field(init=False, factory=trio.Lock)
    _vocabulary: Vocabulary | None = field(init=False, default=None)
    _worker: Worker | None = field(init=False, default=None)
    _is_closed: bool = field(init=False, default=False)

    @property
    def num_running(self) -> int:
        """Compilations under way."""
        return self._places.borrowed_tokens

    async def start(self) -> None:
        """Have a worker ready before the first request asks. A checkpoint."""
        try:
            await self._ready()
        except WorkerLost:
            log.exception("no grammars can be compiled yet")

    async def compile(self, constraint: Constraint) -> CompiledGrammar:
        """The grammar, from the cache if it is known. A checkpoint unless it is.

        Raises GrammarError, Unavailable if it got hardly any processor time, or RequestFailed if no
        worker can be started.
        """
        if len(constraint.source) > MAX_SOURCE_BYTES:
            raise GrammarError(TOO_COMPLEX)
        if (known := self._known(constraint)) is not None:
            return known
        async with self._places:
            # Somebody else may have compiled it meanwhile.
            if (known := self._known(constraint)) is not None:
                return known
            return await self._compile(constraint)

    def close(self) -> None:
        """End the worker, and what it does. Idempotent, not a checkpoint."""
        self._is_closed = True
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _known(self, constraint: Constraint) -> CompiledGrammar | None:
        outcome = self.cache.get(constraint)
        if isinstance(outcome, GrammarError):
            raise GrammarError(outcome.detail)
        return outcome

    async def _compile(self, constraint: Constraint) -> CompiledGrammar:
        for _ in range(_NUM_TRIES):
            try:
                vocabulary, worker = await self._ready()
                return await self._compile_with(worker, vocabulary, constraint)
            except WorkerLost as error:
                log.warning("the grammar worker was lost", error=str(error))
        raise RequestFailed("no worker for grammars can be started")

    async def _compile_with(
        self, worker: Worker, vocabulary: Vocabulary, constraint: Constraint
    ) -> CompiledGrammar:
        job = CompileJob(constraint, self.max_spaces)
        self.num_compiled += 1
        text = None
        try:
            with trio.move_on_after(self.timeout_s):
                text = await worker.compile(job)
        except GrammarError as error:
            # Without its traceback, which holds on to the frames.
            self.cache.put(constraint, GrammarError(error.detail))
            raise
        if text is None:
            if job.cpu_s is not None and job.cpu_s < STARVED_SHARE * self.timeout_s:
                raise Unavailable("The server is too busy to compile a grammar.", code="overloaded")
            # Not kept: on a machine that is less busy it may not take so long.
            raise GrammarError(TOO_COMPLEX)
        compiled = await trio.to_thread.run_sync(
            CompiledGrammar.from_serialized, text, vocabulary, abandon_on_cancel=True
        )
        self.cache.put(constraint, compiled)
        return compiled

    async def _ready(self) -> tuple[Vocabulary, Worker]:
        async with self._starting:
            if self._is_closed:
                raise WorkerLost("the server is closing")
            if self._worker is not None and self._worker.is_lost:
                self._worker.close()
                self._worker = None
            if self._vocabulary is None:
                self._vocabulary = await trio.to_thread.run_sync(self.make_vocabulary)
            if self._worker is None:
                self._worker = await self.start_worker(self._vocabulary)
            return self._vocabulary, self._worker
