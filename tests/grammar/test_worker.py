"""The process that compiles, for real: what it does, what it is bounded by, and how it ends."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.grammar.walks import BYTES, at_random, walk
from trioserve.errors import Unavailable
from trioserve.grammar.compiler import GrammarCompiler
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import GrammarError
from trioserve.grammar.process import WorkerProcess
from trioserve.grammar.worker import LOWEST_PRIORITY
from trioserve.testing.server_process import wait_until

# Hundreds of optional properties whose number is bounded: a quarter of a million rules.
PROPERTIES = {f"p{i}": {"type": "string", "pattern": f"a{{{i}}}b|c"} for i in range(700)}
PATHOLOGICAL = json.dumps({"type": "object", "properties": PROPERTIES, "maxProperties": 350})

REFUSED = (
    (Constraint(GrammarKind.REGEX, "("), "a missing ) at position 1"),
    (
        Constraint(GrammarKind.EBNF, "root ::= nope"),
        'EBNF parser error at line 1, column 10: Rule "nope" is not defined',
    ),
    (
        Constraint(GrammarKind.JSON_SCHEMA, '{"type": "array", "contains": {}}'),
        "contains at # is not supported",
    ),
)


def children_of(pid: int) -> list[int]:
    """Processes that are alive, or not reaped yet."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def num_threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


async def are_least_important(pids: list[int]) -> bool:
    """The first thing that a child does is to become so."""
    return all(
        os.getpriority(os.PRIO_PROCESS, pid) == LOWEST_PRIORITY
        and os.sched_getscheduler(pid) == os.SCHED_IDLE
        for pid in pids
    )


async def wait_for_children(pid: int, number: int) -> list[int]:
    async def are_so_many() -> bool:
        return len(children_of(pid)) == number

    await wait_until(are_so_many, timeout_s=60)
    return children_of(pid)


@pytest.fixture
async def compiler() -> AsyncIterator[GrammarCompiler]:
    compiler = GrammarCompiler(lambda: BYTES, 60.0)
    try:
        yield compiler
    finally:
        compiler.close()


def worker_of(compiler: GrammarCompiler) -> WorkerProcess:
    worker = compiler._worker
    assert isinstance(worker, WorkerProcess)
    return worker


@pytest.mark.slow
async def test_grammars_come_back_from_a_child_at_the_lowest_priority(
    compiler: GrammarCompiler, nursery: trio.Nursery
) -> None:
    """One process for all of it: it takes seconds to start."""
    grammar = await compiler.compile(Constraint(GrammarKind.REGEX, "[0-9]{3}"))
    assert walk(grammar, at_random(1, 9)).text.decode().isdecimal()
    for constraint, detail in REFUSED:
        with pytest.raises(GrammarError) as refused:
            await compiler.compile(constraint)
        assert refused.value.detail == detail
    pid = worker_of(compiler).pid
    await wait_for_children(pid, 0)

    # What bad and large ones took is given back with their children.
    before = resident_bytes(pid)
    for number in range(30):
        bad = Constraint(
            GrammarKind.JSON_SCHEMA, json.dumps({"enum": ["x" * 50_000], "type": number})
        )
        with pytest.raises(GrammarError):
            await compiler.compile(bad)
        await compiler.compile(Constraint(GrammarKind.REGEX, f"[a-z]{{1,{40 + number}}}"))
    assert resident_bytes(pid) - before < 4 * 1024 * 1024
    assert compiler.cache.num_bytes < 64 * 1024 * 1024

    # Ten that would run for minutes, all of whose clients leave.
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as requests:
            for number in range(10):
                source = PATHOLOGICAL + " " * number
                constraint = Constraint(GrammarKind.JSON_SCHEMA, source)
                requests.start_soon(compiler.compile, constraint)
            running = await wait_for_children(pid, 2)
            await wait_until(partial(are_least_important, running), timeout_s=60)
            assert num_threads_of(running[0]) == 1
            scope.cancel()
    await wait_for_children(pid, 0)

    # The limit of time ends a child as well.
    compiler.timeout_s = 3.0
    began = time.monotonic()
    with pytest.raises(GrammarError, match="grammar is too complex"):
        await compiler.compile(Constraint(GrammarKind.JSON_SCHEMA, PATHOLOGICAL))
    assert time.monotonic() - began < 30
    await wait_for_children(pid, 0)

    # One that got no processor in that time is not said to be too complex.
    async def stop_child() -> None:
        (child,) = await wait_for_children(pid, 1)
        os.kill(child, signal.SIGSTOP)

    nursery.start_soon(stop_child)
    with pytest.raises(Unavailable, match="too busy"):
        await compiler.compile(Constraint(GrammarKind.JSON_SCHEMA, PATHOLOGICAL))
    await wait_for_children(pid, 0)
    compiler.timeout_s = 60.0

    # A child that is killed, by the system for one, is that request's failure alone.
    async def kill_child() -> None:
        (child,) = await wait_for_children(pid, 1)
        os.kill(child, signal.SIGKILL)

    nursery.start_soon(kill_child)
    with pytest.raises(GrammarError, match="grammar is too complex"):
        await compiler.compile(Constraint(GrammarKind.JSON_SCHEMA, PATHOLOGICAL + "\n"))

    # A worker that is killed is replaced.
    os.kill(pid, signal.SIGKILL)
    grammar = await compiler.compile(Constraint(GrammarKind.REGEX, "[0-9]{4}"))
    assert len(walk(grammar, at_random(1, 9)).text) == 4
    new_pid = worker_of(compiler).pid
    assert new_pid != pid
    compiler.close()
    assert new_pid not in children_of(os.getpid())


@pytest.mark.slow
async def test_a_start_that_is_cancelled_leaves_no_process(compiler: GrammarCompiler) -> None:
    before = set(children_of(os.getpid()))
    with trio.move_on_after(0.3):
        await compiler.compile(Constraint(GrammarKind.REGEX, "[0-9]{3}"))
    assert compiler._worker is None
    assert set(children_of(os.getpid())) <= before
