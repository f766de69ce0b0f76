"""Processes that hold, fill or lose a storage directory: `child.py hold|write|full DIRECTORY`."""

import itertools
import logging
import resource
import sys
from pathlib import Path

from tests.tiers.kit import BOUND, items
from trioserve.errors import ConfigError
from trioserve.tiers.storage import StorageTier

BATCH = 3
NUM_PAGES = 200
PAGE_BYTES = 400_000
"""So that the bound is reached after some fifty batches, and deletes come between the writes."""
FULL_BYTES = 20 * 2**20


def numbers_of(batch: int) -> list[int]:
    """The pages of a batch, the same in each process; after a while they come again."""
    return [n % NUM_PAGES for n in range(batch * BATCH, (batch + 1) * BATCH)]


def say(*words: object) -> None:
    """One line to whoever started us, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def hold(directory: Path) -> None:
    """Keeps the directory until standard input ends."""
    try:
        tier = StorageTier.open(directory, BOUND)
    except ConfigError as error:
        say(error)
        raise SystemExit(2) from None
    say("held")
    sys.stdin.read()
    tier.close()


def write(directory: Path, first_batch: int) -> None:
    """Writes until killed; prints a batch's number when it is written."""
    tier = StorageTier.open(directory, BOUND)
    for batch in itertools.count(first_batch):
        pages = numbers_of(batch)
        tier.write(items(*pages, num_bytes=PAGE_BYTES))
        say(batch)


def full(directory: Path, max_bytes: int) -> None:
    """Writes until files can grow no more, and on; says what each call wrote and read."""
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
    tier = StorageTier.open(directory, BOUND)
    for batch in range(20):
        pages = numbers_of(batch)
        written = tier.write(items(*pages, num_bytes=PAGE_BYTES * 3))
        read = sum(page is not None for page in tier.read([key for key, _ in items(*pages)]))
        say("pages", written, read)
    tier.close()


if __name__ == "__main__":
    mode, place, *numbers = sys.argv[1:]
    {"hold": hold, "write": write, "full": full}[mode](Path(place), *map(int, numbers))
