"""Embedded key-value stores with pages of keys and values as payload; one JSON line an engine.

    just bench storage_engines --directory ./scratch --engines sqlite,lmdb

`sqlite` keeps a rollback journal, `sqlite-wal` a write-ahead log; `lmdb` and `rocksdb` need the
packages lmdb and rocksdict, which nothing else does. Every engine writes whole batches in one
transaction, stays consistent after a power cut and waits for the disk no more than that takes:
what a cache wants. Each phase runs in a process of its own, so that one that dies is a result:

- `write`: pages into an empty store, ended by `close`.
- `read_cold`: in order, after the kernel was told to forget the files; `read_warm`: at random;
  `open_ms`: opening the store and listing its keys before that.
- `reuse`: three times as many pages again, each batch in place of the oldest one; the files' size
  at its end and at its largest, against the bytes of the pages that are held.
- `stall_ms`: how late another Python thread got to run, at worst and at the 99th percentile: an
  engine that waits for the disk with the interpreter's lock held stops an event loop too.
- `kill`: a writer is killed (SIGKILL) at a random moment, several times; then all keys are read.
- `flip`, `cut`: damage to the closed files: bytes overwritten, or the largest file cut in half.
  What a reader gets then: the right bytes, none, wrong ones (for a checksum of ours to catch), an
  error, or its death by a signal.
"""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson

from bench import summary
from bench.stores import Job, Pages, key_of

SPAWN = multiprocessing.get_context("spawn")


class Stalls:
    """A thread that wants to run every millisecond and notes how late it did, in seconds."""

    def __init__(self) -> None:
        self._late_s: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Stalls":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            started_at = time.perf_counter()
            time.sleep(0.001)
            self._late_s.append(time.perf_counter() - started_at - 0.001)

    def worst_ms(self) -> dict[str, float]:
        """The 99th percentile and the worst."""
        found = summary.percentile(self._late_s, 99) or 0.0
        return {"p99": round(found * 1000, 2), "max": round(max(self._late_s) * 1000, 2)}


def files_of(directory: Path) -> list[Path]:
    """Every file of a store."""
    return [path for path in directory.rglob("*") if path.is_file()]


def disk_bytes(directory: Path) -> int:
    """What the files occupy; a sparse file counts what it holds."""
    return sum(path.stat().st_blocks * 512 for path in files_of(directory))


def forget(directory: Path) -> None:
    """Has the kernel drop the files from its page cache, as after a restart of the machine."""
    for path in files_of(directory):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rate(num_bytes: int, elapsed_s: float) -> float:
    """MB/s."""
    return round(num_bytes / elapsed_s / 1e6, 1)


def write(job: Job) -> dict[str, Any]:
    """Fills an empty store."""
    pages, store = Pages.of(job), job.open()
    with Stalls() as stalls:
        started_at = time.perf_counter()
        for numbers in job.batches(0, job.num_pages):
            store.write(pages.items(numbers))
        store.close()
        elapsed_s = time.perf_counter() - started_at
    return {
        "mb_s": rate(job.num_pages * job.page_bytes, elapsed_s),
        "stall_ms": stalls.worst_ms(),
        "disk_ratio": round(disk_bytes(job.directory) / (job.num_pages * job.page_bytes), 3),
    }


def read(job: Job, *, is_cold: bool) -> dict[str, Any]:
    """Reads every page once: in order from the disk, or at random from the kernel's cache."""
    numbers = list(range(job.num_pages))
    if is_cold:
        forget(job.directory)
    else:
        random.Random(job.seed).shuffle(numbers)
    keys = [key_of(number) for number in numbers]
    started_at = time.perf_counter()
    store = job.open()
    assert len(store.keys()) == job.num_pages, "pages are missing"
    open_s = time.perf_counter() - started_at
    with Stalls() as stalls:
        started_at = time.perf_counter()
        for key in keys:
            assert len(store.read(key) or b"") == job.page_bytes
        elapsed_s = time.perf_counter() - started_at
    store.close()
    found = {"mb_s": rate(job.num_pages * job.page_bytes, elapsed_s), "stall_ms": stalls.worst_ms()}
    return {**found, "open_ms": round(open_s * 1000, 1)}


def reuse(job: Job) -> dict[str, Any]:
    """Replaces the oldest batch by a new one, until every page was replaced three times."""
    pages, store, largest = Pages.of(job), job.open(), 0
    started_at = time.perf_counter()
    for numbers in job.batches(job.num_pages, 3 * job.num_pages):
        store.replace([key_of(n - job.num_pages) for n in numbers], pages.items(numbers))
        largest = max(largest, disk_bytes(job.directory))
    store.close()
    elapsed_s = time.perf_counter() - started_at
    held = job.num_pages * job.page_bytes
    return {
        "mb_s": rate(3 * held, elapsed_s),
        "disk_ratio": round(disk_bytes(job.directory) / held, 3),
        "disk_ratio_max": round(largest / held, 3),
    }


def empty(job: Job) -> None:
    """Makes the store's directory anew."""
    shutil.rmtree(job.directory)
    job.directory.mkdir()


def write_until_killed(job: Job, acknowledged: Any) -> None:
    """Tells each batch that is written; ends by SIGKILL."""
    pages, store = Pages.of(job), job.open()
    for numbers in job.batches(0, 10**9):
        store.write(pages.items(numbers))
        acknowledged.value = numbers[-1] + 1


def inspect(job: Job, num_pages: int) -> dict[str, Any]:
    """Reads whatever the store says it has and compares it with the first `num_pages`."""
    pages = Pages.of(job)
    number_of = {key_of(number): number for number in range(num_pages)}
    started_at = time.perf_counter()
    try:
        store = job.open()
        keys = store.keys()
    except Exception as error:
        return {"open_error": str(error)}
    open_s = time.perf_counter() - started_at
    found = dict.fromkeys(("right", "wrong", "error"), 0)
    for key in keys:
        try:
            value = store.read(key)
        except Exception:
            found["error"] += 1
        else:
            is_right = key in number_of and value == pages.value(number_of[key])
            found["right" if is_right else "wrong"] += 1
    return {**found, "missing": num_pages - len(keys), "open_ms": round(open_s * 1000, 1)}


def kill(job: Job, times: int) -> dict[str, Any]:
    """Kills `times` writers, each in an empty directory, and looks after each death."""
    rng, lost, wrong, open_ms = random.Random(job.seed), 0, 0, 0.0
    for _ in range(times):
        empty(job)
        acknowledged = SPAWN.Value("q", 0)
        writer = SPAWN.Process(target=write_until_killed, args=(job, acknowledged))
        writer.start()
        while not acknowledged.value and writer.is_alive():
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.3))
        writer.kill()
        writer.join()
        # A batch may be whole on disk before the writer could say so.
        after = in_process(inspect, job, acknowledged.value + job.batch_pages)
        if "right" not in after:
            return after
        lost += max(0, acknowledged.value - after["right"])
        wrong += after["wrong"] + after["error"]
        open_ms = max(open_ms, after["open_ms"])
    return {"times": times, "lost_pages": lost, "wrong": wrong, "open_ms_max": open_ms}


def flip(job: Job) -> dict[str, Any]:
    """Overwrites 64 bytes in every 8 MiB of each file, then reads."""
    rng = random.Random(job.seed)
    for path in files_of(job.directory):
        with path.open("r+b") as file:
            for start in range(2**23, path.stat().st_size, 2**23):
                file.seek(start + rng.randrange(2**20))
                file.write(rng.randbytes(64))
    return in_process(inspect, job, job.num_pages)


def cut(job: Job) -> dict[str, Any]:
    """Cuts the largest file in half, then reads."""
    path = max(files_of(job.directory), key=lambda path: path.stat().st_size)
    os.truncate(path, path.stat().st_size // 2)
    return in_process(inspect, job, job.num_pages)


def _answer(connection: Any, phase: Callable[..., Any], args: Any, kwargs: Any) -> None:
    connection.send(phase(*args, **kwargs))


def in_process(phase: Callable[..., dict[str, Any]], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The phase's result, or how its process died."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_answer, args=(theirs, phase, args, kwargs))
    process.start()
    theirs.close()
    result: dict[str, Any] | None = None
    with contextlib.suppress(EOFError):
        result = ours.recv()
    process.join()
    if result is not None:
        return result
    code = process.exitcode or 0
    return {"died": signal.Signals(-code).name if code < 0 else f"exit code {code}"}


def measure(job: Job, kills: int) -> dict[str, Any]:
    """All phases of one engine."""
    line: dict[str, Any] = {"write": in_process(write, job)}
    line["read_cold"] = in_process(read, job, is_cold=True)
    line["read_warm"] = in_process(read, job, is_cold=False)
    line["reuse"] = in_process(reuse, job)
    line["kill"] = kill(job, kills)
    for name, damage in (("flip", flip), ("cut", cut)):
        empty(job)
        in_process(write, job)
        line[name] = damage(job)
    return line


@click.command(help="Compares embedded stores with pages as payload.")
@click.option("--directory", type=click.Path(path_type=Path), required=True, help="Made, emptied.")
@click.option("--engines", default="sqlite,sqlite-wal,lmdb,rocksdb", show_default=True)
@click.option("--pages", default=500, show_default=True, type=click.IntRange(8))
@click.option("--page-bytes", default=737_280, show_default=True, type=click.IntRange(64))
@click.option("--batch-pages", default=8, show_default=True, type=click.IntRange(1))
@click.option("--kills", default=5, show_default=True, type=click.IntRange(0))
@click.option("--seed", default=0, show_default=True)
def main(
    directory: Path,
    engines: str,
    pages: int,
    page_bytes: int,
    batch_pages: int,
    kills: int,
    seed: int,
) -> None:
    """One line an engine."""
    for engine in engines.split(","):
        place = directory / f"storage-engines-{engine}"
        place.mkdir(parents=True)
        try:
            job = Job(engine, place, pages, page_bytes, batch_pages, seed)
            facts = {"commit": summary.commit(), "device": summary.device(), "seed": seed}
            shape = {"pages": pages, "page_bytes": page_bytes, "batch_pages": batch_pages}
            line = {"bench": "storage_engines", "engine": engine, **facts, "shape": shape}
            click.echo(orjson.dumps({**line, **measure(job, kills)}))
        finally:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
