"""Damaged files, other formats, full disks: a miss or an empty cache, and never an exception."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.tiers.child import FULL_BYTES, NUM_PAGES, PAGE_BYTES
from tests.tiers.kit import BOUND, child, items, key, keys, payload
from trioserve.errors import ConfigError
from trioserve.tiers.page_file import BLOCK_BYTES, FILE_NAME, PageFile
from trioserve.tiers.storage import StorageTier

NUM = 12
SIZE = 81_920


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The closed file of a tier that holds pages 0 to NUM - 1."""
    tier = StorageTier.open(tmp_path, BOUND)
    tier.write(items(*range(NUM), num_bytes=SIZE))
    tier.close()
    return tmp_path / FILE_NAME


def replace(path: Path, old: bytes, new: bytes) -> None:
    contents = path.read_bytes()
    assert old in contents
    assert len(old) == len(new)
    path.write_bytes(contents.replace(old, new))


def open_tier(path: Path) -> StorageTier:
    return StorageTier.open(path.parent, BOUND)


def read_all(tier: StorageTier) -> int:
    """How many pages are right; any other has to be a miss."""
    found = tier.read(keys(*range(NUM)))
    for number, page in enumerate(found):
        assert page is None or page == payload(number, SIZE)
    return sum(page is not None for page in found)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_damaged_pages_are_misses_counted_deleted_and_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (3, 4, 7):
        block = payload(number, 4096)[:2000]
        replace(path, block, bytes(2000))
    tier = open_tier(path)
    assert tier.contains_prefix(keys(*range(NUM))) == NUM
    assert tier.read(keys(3, 2, 4, 3)) == [None, payload(2, SIZE), None, None]
    assert tier.contains_prefix(keys(*range(NUM))) == 3
    assert read_all(tier) == NUM - 3
    assert tier.statistics().damaged == 3
    assert len(messages(caplog)) == 1
    assert "--cache-storage: a page in" in messages(caplog)[0]
    # The page is written anew like any other.
    assert tier.write(items(3, num_bytes=SIZE)) == 1
    tier.close()
    tier = open_tier(path)
    assert read_all(tier) == NUM - 2
    tier.close()


def test_a_page_under_another_pages_key_is_a_miss(path: Path) -> None:
    replace(path, key(2), key(99))
    tier = open_tier(path)
    assert tier.contains_prefix(keys(99)) == 1
    assert tier.read(keys(99, 2)) == [None, None]
    assert tier.statistics().damaged == 1
    tier.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM payload WHERE id = 5",
        "DELETE FROM page WHERE id = 5",
        "DROP TABLE payload",
        "ALTER TABLE page RENAME COLUMN used TO usee",
        "UPDATE page SET key = (SELECT key FROM page WHERE id = 4) WHERE id = 5",
        "UPDATE page SET key = 'text' WHERE id = 5",
        "UPDATE page SET used = CAST(x'ff' AS TEXT) WHERE id = 5",
        "UPDATE page SET used = 9223372036854775807 WHERE id = 5",
        "UPDATE page SET num_bytes = -1 WHERE id = 5",
    ],
)
def test_tables_that_do_not_fit_together_are_made_anew(
    path: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()
    tier = open_tier(path)
    assert read_all(tier) == 0
    assert tier.write(items(*range(NUM), num_bytes=SIZE)) == NUM
    tier.close()
    expected = f"--cache-storage: the cache in {path.parent} is damaged: made anew"
    assert messages(caplog) == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_damage_leads_to_a_wrong_page_or_an_exception(path: Path, seed: int) -> None:
    """Bits turned, blocks zeroed, swapped, repeated, and the file's end cut off; also in use."""
    rng, whole = Random(seed), path.read_bytes()
    for attempt in range(12):
        contents = bytearray(whole)
        for _ in range(rng.choice((1, 3, 30))):
            # Half of all damage where it does most: among the first blocks, and their headers.
            num_blocks = len(contents) // BLOCK_BYTES
            reach = num_blocks if rng.random() < 0.5 else min(num_blocks, 4)
            at, other = (rng.randrange(n) * BLOCK_BYTES for n in (reach, num_blocks))
            match rng.randrange(5):
                case 0:
                    contents[at + rng.randrange(200)] ^= 1 << rng.randrange(8)
                case 1:
                    contents[at + rng.randrange(BLOCK_BYTES)] ^= 1 << rng.randrange(8)
                case 2:
                    contents[at : at + 4096] = bytes(4096)
                case 3:
                    contents[at : at + BLOCK_BYTES] = contents[other : other + BLOCK_BYTES]
                case 4:
                    del contents[max(BLOCK_BYTES, len(contents) - rng.randrange(40_000)) :]
        is_in_use = attempt % 3 == 0
        path.write_bytes(whole if is_in_use else contents)
        tier = open_tier(path)
        if is_in_use:
            path.write_bytes(contents)
        num_right = read_all(tier)
        tier.write(items(*range(NUM), num_bytes=SIZE))
        assert read_all(tier) >= num_right or not tier.statistics().is_on
        tier.close()
        # Whatever it was, it is over once it has turned a tier off.
        states = []
        for _ in range(4):
            tier = open_tier(path)
            tier.write(items(*range(NUM), num_bytes=SIZE))
            states.append(tier.statistics().is_on and read_all(tier) == NUM)
            tier.close()
        assert states[-1], states


@pytest.mark.parametrize("spoil", [b"", b"not a database" * 5000], ids=["empty", "foreign"])
def test_a_file_that_is_no_database_is_made_anew(
    path: Path, spoil: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(spoil)
    tier = open_tier(path)
    assert read_all(tier) == 0
    assert tier.write(items(1)) == 1
    tier.close()
    expected = f"--cache-storage: the cache in {path.parent} is damaged: made anew"
    assert messages(caplog) == ([expected] if spoil else [])


def test_a_file_of_another_format_is_made_anew_with_a_line(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    tier = open_tier(path)
    assert read_all(tier) == 0
    assert tier.write(items(1)) == 1
    tier.close()
    (message,) = messages(caplog)
    assert message.endswith("was written by another version of trioserve: made anew")
    tier = open_tier(path)
    assert tier.contains_prefix(keys(1)) == 1
    tier.close()


def test_a_database_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("CREATE TABLE page(mine)")
    db.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(ConfigError, match=r"is not a cache of trioserve; name another directory"):
        StorageTier.open(tmp_path, BOUND)
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.slow
def test_a_full_disk_turns_the_tier_off_with_one_line(tmp_path: Path) -> None:
    """A limit on file sizes, which a write meets like the end of a disk."""
    with child("full", tmp_path, FULL_BYTES) as process:
        printed, _ = process.communicate()
    assert process.returncode == 0
    counts = [tuple(map(int, row.split()[1:])) for row in printed.splitlines() if "pages" in row]
    off = [row for row in printed.splitlines() if not row.startswith("pages")]
    num_written = sum(written for written, _ in counts)
    assert num_written == 15
    assert all(written == read for written, read in counts)
    assert counts[5:] == [(0, 0)] * 15
    (line,) = off
    assert line.startswith(f"--cache-storage: the cache in {tmp_path} is off (")
    assert line.endswith("restart the server when that is mended")
    # What was written before is there at the next start.
    tier = StorageTier.open(tmp_path, BOUND)
    found = tier.read(keys(*range(NUM_PAGES)))
    assert [n for n, page in enumerate(found) if page is not None] == list(range(num_written))
    assert found[:num_written] == [payload(n, PAGE_BYTES * 3) for n in range(num_written)]
    tier.close()


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_start_leaves_the_tier_off(tmp_path: Path) -> None:
    with child("full", tmp_path, 8192) as process:
        printed, _ = process.communicate()
    assert process.returncode == 0
    first, *rest = printed.splitlines()
    assert first.startswith(f"--cache-storage: the cache in {tmp_path} is off (")
    assert rest == ["pages 0 0"] * 20


def failing_read(*_: object) -> bytes:
    raise sqlite3.OperationalError("disk I/O error")


def no_memory(*_: object) -> bytes:
    raise MemoryError("none left")


@pytest.mark.parametrize("fail", [failing_read, no_memory])
def test_a_read_error_turns_the_tier_off_with_one_line(
    path: Path,
    fail: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tier = open_tier(path)
    monkeypatch.setattr(PageFile, "read", fail)
    assert tier.read(keys(0, 1)) == [None, None]
    assert tier.read(keys(0, 1)) == [None, None]
    assert tier.contains_prefix(keys(0)) == tier.write(items(1)) == 0
    assert len(messages(caplog)) == 1
    tier.close()
    monkeypatch.undo()
    # The pages are still there for the next start.
    tier = open_tier(path)
    assert read_all(tier) == NUM
    tier.close()


def test_a_file_cut_short_in_use_is_given_up(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tier = open_tier(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    num_right = read_all(tier)
    tier.write(items(20, 21))
    assert num_right < NUM
    assert read_all(tier) <= num_right
    tier.close()
    tier = open_tier(path)
    assert tier.statistics().is_on
    read_all(tier)
    tier.close()
