"""Keys and payloads that tests can make again from a number, in any process; and such processes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from trioserve.tiers.page_key import PageKey

ROOT = Path(__file__).parents[2]
MIB = 2**20
BOUND = 64 * MIB


def key(number: int) -> PageKey:
    return PageKey(Random(f"key {number}").randbytes(32))


def keys(*numbers: int) -> list[PageKey]:
    return [key(number) for number in numbers]


def payload(number: int, num_bytes: int = MIB) -> bytes:
    """No two alike; not all of the same length."""
    return Random(f"payload {number}").randbytes(4096) * (num_bytes // 4096) + bytes(number % 7)


def items(*numbers: int, num_bytes: int = MIB) -> list[tuple[PageKey, bytes]]:
    return [(key(number), payload(number, num_bytes)) for number in numbers]


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`child.py` with pipes; killed at the end if it has not ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.tiers.child", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")
