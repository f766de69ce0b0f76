"""The compiler's bounds, in number, time and size; and what a request that leaves takes along."""

import json
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field

from tests.api.kit import COMPLETIONS, ENDPOINTS, StartApi
from tests.grammar.walks import BYTES, allowed
from trioserve.errors import RequestFailed, Unavailable
from trioserve.grammar.cache import GrammarCache
from trioserve.grammar.compilation import compile_constraint, new_compiler
from trioserve.grammar.compiled import CompiledGrammar
from trioserve.grammar.compiler import MAX_CONCURRENT, GrammarCompiler
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import GrammarError
from trioserve.grammar.job import CompileJob
from trioserve.grammar.process import WorkerLost
from trioserve.grammar.state import GrammarState
from trioserve.grammar.vocabulary import Vocabulary
from trioserve.testing.fake_text import EOS_ID
from trioserve.testing.local_worker import LocalWorker


@define(eq=False)
class SlowWorker:
    """Compiles when told."""

    is_lost: bool = False
    running: list[Constraint] = field(factory=list)
    num_cancelled: int = 0
    may_finish: trio.Event = field(factory=trio.Event)

    cpu_s: float | None = None
    """What each is said to have had."""

    async def compile(self, job: CompileJob) -> bytes:
        self.running.append(job.constraint)
        try:
            await self.may_finish.wait()
            return await LocalWorker(BYTES).compile(job)
        except trio.Cancelled:
            self.num_cancelled += 1
            raise
        finally:
            job.cpu_s = self.cpu_s
            self.running.remove(job.constraint)

    def close(self) -> None:
        self.is_lost = True


JSON_OBJECT = Constraint(GrammarKind.JSON_OBJECT)


def regex(number: int) -> Constraint:
    return Constraint(GrammarKind.REGEX, f"[ab]{{{number}}}")


def compiler_with(worker: Any, timeout_s: float = 10.0) -> GrammarCompiler:
    async def start(_: Vocabulary) -> Any:
        await trio.lowlevel.checkpoint()
        return worker

    return GrammarCompiler(lambda: BYTES, timeout_s, start)


async def blocked(call: Callable[[], Awaitable[object]], nursery: trio.Nursery) -> None:
    """Start a call that is going to wait."""

    async def run() -> None:
        await call()

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked(0.02)


async def test_equal_constraints_are_compiled_once() -> None:
    compiler = compiler_with(await LocalWorker.start(BYTES))
    first = await compiler.compile(regex(1))
    assert await compiler.compile(regex(1)) is first
    assert await compiler.compile(regex(2)) is not first
    assert compiler.num_compiled == 2
    for _ in range(2):
        with pytest.raises(GrammarError, match="a missing"):
            await compiler.compile(Constraint(GrammarKind.REGEX, "("))
    assert compiler.num_compiled == 3


async def test_the_setting_of_spaces_reaches_the_grammar() -> None:
    compiler = compiler_with(await LocalWorker.start(BYTES))
    compiler.max_spaces = 0
    state = GrammarState(await compiler.compile(JSON_OBJECT), frozenset({EOS_ID}))
    state.accept(ord("{"))
    assert set(allowed(state)) == {ord('"'), ord("}")}


def test_a_job_is_the_same_in_the_other_process() -> None:
    constraint = Constraint(GrammarKind.REGEX, "\ud800é")
    job = CompileJob.from_json(CompileJob(constraint, 3).to_json())
    assert (job.constraint, job.max_spaces) == (constraint, 3)


async def test_those_who_wait_for_a_place_take_what_others_compiled(nursery: trio.Nursery) -> None:
    worker = SlowWorker()
    compiler = compiler_with(worker)
    for _ in range(10):
        await blocked(partial(compiler.compile, regex(1)), nursery)
    assert len(worker.running) == compiler.num_running == MAX_CONCURRENT
    worker.may_finish.set()
    await compiler.compile(regex(1))
    assert compiler.num_compiled == MAX_CONCURRENT


@pytest.mark.case(79)
async def test_ten_that_left_leave_nothing(nursery: trio.Nursery) -> None:
    """Case 79: at most so many run at once, and a cancelled one ends at once."""
    worker = SlowWorker()
    compiler = compiler_with(worker)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as requests:
            for number in range(10):
                await blocked(partial(compiler.compile, regex(number)), requests)
            assert len(worker.running) == MAX_CONCURRENT
            scope.cancel()
    assert not worker.running
    assert worker.num_cancelled == MAX_CONCURRENT
    assert compiler.num_running == 0
    assert len(compiler.cache) == 0


async def test_a_compilation_that_takes_too_long_is_too_complex(
    autojump_clock: trio.testing.MockClock,
) -> None:
    worker = SlowWorker()
    compiler = compiler_with(worker, timeout_s=3.0)
    began = trio.current_time()
    with pytest.raises(GrammarError, match="grammar is too complex"):
        await compiler.compile(regex(1))
    assert trio.current_time() - began == 3.0
    assert not worker.running
    # It may have been the machine's fault.
    assert len(compiler.cache) == 0


@pytest.mark.parametrize(("cpu_s", "error"), [(0.1, Unavailable), (0.2, GrammarError)])
async def test_a_compilation_that_got_no_processor_says_nothing_about_its_grammar(
    cpu_s: float, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    """A client may try again; one whose grammar is too complex need not."""
    worker = SlowWorker()
    worker.cpu_s = cpu_s
    compiler = compiler_with(worker, timeout_s=3.0)
    with pytest.raises(error):
        await compiler.compile(regex(1))
    assert len(compiler.cache) == 0


async def test_a_worker_that_is_lost_is_replaced() -> None:
    started: list[Any] = []

    class Dying:
        is_lost = False

        async def compile(self, job: CompileJob) -> bytes:
            self.is_lost = True
            raise WorkerLost("killed")

        def close(self) -> None:
            pass

    async def start(_: Vocabulary) -> Any:
        started.append(Dying() if not started else await LocalWorker.start(BYTES))
        return started[-1]

    compiler = GrammarCompiler(lambda: BYTES, 10.0, start)
    assert isinstance(await compiler.compile(regex(1)), CompiledGrammar)
    assert len(started) == 2


async def test_without_a_worker_the_request_fails() -> None:
    async def start(_: Vocabulary) -> Any:
        raise WorkerLost("no memory")

    compiler = GrammarCompiler(lambda: BYTES, 10.0, start)
    await compiler.start()  # says so in the log, and nothing else
    with pytest.raises(RequestFailed):
        await compiler.compile(regex(1))


async def test_a_closed_compiler_starts_nothing() -> None:
    worker = SlowWorker()
    compiler = compiler_with(worker)
    await compiler.start()
    compiler.close()
    compiler.close()
    assert worker.is_lost
    with pytest.raises(RequestFailed):
        await compiler.compile(regex(1))


async def test_the_cache_holds_so_many_bytes_and_forgets_the_least_used() -> None:
    compiler = compiler_with(await LocalWorker.start(BYTES))
    grammars = [
        evolve(await compiler.compile(regex(number)), num_bytes=10_000) for number in range(1, 5)
    ]
    cache = GrammarCache(max_bytes=35_000)
    for number, grammar in enumerate(grammars[:3], start=1):
        cache.put(regex(number), grammar)
    assert cache.get(regex(1)) is grammars[0]
    cache.put(regex(4), grammars[3])
    assert cache.get(regex(2)) is None
    assert cache.get(regex(1)) is grammars[0]
    assert cache.num_bytes <= cache.max_bytes
    before = (len(cache), cache.num_bytes)
    cache.put(regex(5), evolve(grammars[0], num_bytes=cache.max_bytes))
    assert cache.get(regex(5)) is None
    assert (len(cache), cache.num_bytes) == before


def test_a_grammar_counts_for_more_than_its_masks() -> None:
    """Rules of many states are the larger part, and xgrammar does not count them."""
    source = json.dumps({"type": "object", "properties": {f"p{i}": {} for i in range(60)}})
    made = compile_constraint(
        new_compiler(BYTES), BYTES, Constraint(GrammarKind.JSON_SCHEMA, source)
    )
    text = made.serialize_json().encode()
    kept = CompiledGrammar.from_serialized(text, BYTES)
    assert kept.num_bytes > 2 * made.memory_size_bytes
    assert kept.num_bytes > len(text)


def test_what_was_refused_is_known_but_not_kept() -> None:
    """Anybody may send as many bad schemas as they like."""
    cache = GrammarCache()
    tracemalloc.start()
    try:
        for number in range(200):
            bad = Constraint(GrammarKind.JSON_SCHEMA, f"{number}" + "x" * 50_000)
            cache.put(bad, GrammarError("it is not valid JSON"))
            assert isinstance(cache.get(bad), GrammarError)
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cache) == 200
    assert num_bytes < 1_000_000


@pytest.mark.parametrize("source", ["a", "b", "\ud800", "é"])
@pytest.mark.parametrize("kind", GrammarKind)
def test_constraints_that_differ_are_told_apart(kind: GrammarKind, source: str) -> None:
    constraint = Constraint(kind, source)
    others = [Constraint(k, s) for k in GrammarKind for s in ("a", "b", "\ud800", "é", "")]
    same = [other for other in others if other.digest() == constraint.digest()]
    assert same == [constraint]


@pytest.mark.case(89)
async def test_a_client_that_leaves_during_a_compilation_has_nothing_computed(
    start: StartApi, nursery: trio.Nursery
) -> None:
    """Case 89: no prefill, nothing admitted, and its compilation is over."""
    bench = await start()
    worker = SlowWorker()

    async def start_worker(_: Vocabulary) -> Any:
        return worker

    bench.engine.grammars.start_worker = start_worker
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as requests:
            for stream in (False, True):
                await blocked(
                    partial(bench.wire_request, COMPLETIONS, regex="[ab]{3}", stream=stream),
                    requests,
                )
            assert worker.running
            assert bench.engine.batch.is_idle
            scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert not worker.running
    assert not bench.runner.plans
    assert bench.engine.grammars.num_running == 0
    assert (await bench.post(COMPLETIONS, max_tokens=2)).status == 200
    bench.check_idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_too_busy_to_compile_says_so(
    start: StartApi, stream: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Before any byte of a stream, and in a way that clients retry."""
    bench = await start()

    async def start_worker(_: Vocabulary) -> Any:
        return SlowWorker(cpu_s=0.0)

    bench.engine.grammars.start_worker = start_worker
    for path in ENDPOINTS:
        answer = await bench.post(path, regex="[ab]{3}", stream=stream)
        assert answer.status == 503
        assert answer.json()["error"]["code"] == "overloaded"
        assert answer.headers["retry-after"] == "1"
    bench.check_idle()


async def test_others_go_on_while_a_grammar_compiles(
    start: StartApi, nursery: trio.Nursery
) -> None:
    bench = await start("on")
    worker = SlowWorker()

    async def start_worker(_: Vocabulary) -> Any:
        return worker

    bench.engine.grammars.start_worker = start_worker
    await blocked(partial(bench.post, COMPLETIONS, regex="[ab]{3}"), nursery)
    assert worker.running
    assert (await bench.post(COMPLETIONS)).texts() == ["on"]
    assert (await bench.get("/health")).status == 200
    worker.may_finish.set()
