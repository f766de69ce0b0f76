"""What the storage tier keeps, what it drops first, and its bound on disk."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.tiers.kit import BOUND, MIB, items, key, keys, payload
from trioserve.tiers import page_store
from trioserve.tiers.storage import StorageTier


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[StorageTier]:
    tier = StorageTier.open(tmp_path, BOUND)
    yield tier
    tier.close()


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def fill(tier: StorageTier, *numbers: int) -> None:
    """One page at a time, each a prefix of its own, until there is no room for more."""
    for number in numbers:
        assert tier.write(items(number)) == 1


def test_pages_come_back_as_they_were_written(tier: StorageTier) -> None:
    assert tier.write(items(1, 2, 3)) == 3
    assert tier.read(keys(3, 9, 1)) == [payload(3), None, payload(1)]
    statistics = tier.statistics()
    assert (statistics.num_pages, statistics.written) == (3, 3)
    assert (statistics.hits, statistics.misses) == (2, 1)
    assert tier.read([]) == []
    assert tier.write([]) == 0


def test_any_contiguous_buffer_can_be_written(tier: StorageTier) -> None:
    floats = memoryview(payload(0)).cast("f")
    tier.write([(key(1), floats), (key(2), bytearray(b"two")), (key(3), b"")])
    assert tier.read(keys(1, 2, 3)) == [payload(0), b"two", b""]


def test_a_page_that_is_there_is_not_written_again(tier: StorageTier) -> None:
    tier.write(items(1))
    assert tier.write([*items(1, 2), *items(2)]) == 1
    assert tier.statistics().num_pages == 2


def test_a_prefix_is_counted_up_to_its_first_gap(tier: StorageTier) -> None:
    tier.write(items(1, 2, 4))
    assert tier.contains_prefix(keys(1, 2, 3, 4)) == 2
    assert tier.contains_prefix(keys(1, 2)) == 2
    assert tier.contains_prefix(keys(3, 1)) == tier.contains_prefix([]) == 0


def test_pages_outlive_the_tier(tmp_path: Path) -> None:
    for number in range(3):
        tier = StorageTier.open(tmp_path, BOUND)
        assert tier.contains_prefix(keys(0, 1, 2)) == number
        assert tier.read(keys(*range(number))) == [payload(n) for n in range(number)]
        tier.write(items(number))
        tier.close()


def test_a_closed_tier_holds_nothing_and_raises_nothing(tmp_path: Path) -> None:
    tier = StorageTier.open(tmp_path, BOUND)
    tier.write(items(1))
    tier.close()
    tier.close()
    assert tier.read(keys(1)) == [None]
    assert tier.write(items(2)) == 0
    assert tier.contains_prefix(keys(1)) == 0
    tier.touch(keys(1))
    tier.clear()
    assert not tier.statistics().is_on


@pytest.mark.slow
def test_files_never_outgrow_the_bound_and_it_is_used(tmp_path: Path, tier: StorageTier) -> None:
    for first in range(0, 120, 6):
        tier.write(items(*range(first, first + 6), num_bytes=MIB + 8000))
        statistics = tier.statistics()
        assert disk_bytes(tmp_path) <= BOUND
        assert statistics.held_bytes <= BOUND
    assert statistics.evicted == 120 - statistics.num_pages > 60
    # The journal's share and one batch of slack are all that is not used.
    assert statistics.num_pages >= (BOUND - page_store._JOURNAL_BYTES) // (MIB + 8000) - 2
    assert tier.contains_prefix(keys(*range(72, 120))) == 48


def test_the_page_used_longest_ago_makes_room(tier: StorageTier) -> None:
    fill(tier, *range(54))
    assert tier.statistics().evicted == 0
    tier.read(keys(0))
    tier.touch(keys(1, 777))
    tier.write(items(2))
    fill(tier, *range(100, 105))
    gone = [n for n in range(54) if not tier.contains_prefix(keys(n))]
    assert gone == list(range(3, 3 + len(gone)))
    assert len(gone) == tier.statistics().evicted >= 3


def test_the_end_of_a_prefix_is_dropped_before_its_beginning(tier: StorageTier) -> None:
    tier.write(items(*range(27)))
    tier.write(items(*range(27, 54)))
    tier.touch(keys(*range(54)))
    fill(tier, *range(100, 110))
    left = tier.contains_prefix(keys(*range(54)))
    assert 40 <= left < 54
    assert not any(tier.contains_prefix(keys(n)) for n in range(left, 54))


def test_pages_written_at_once_are_dropped_from_the_last_one_on(tier: StorageTier) -> None:
    tier.write(items(*range(54)))
    fill(tier, *range(100, 105))
    left = tier.contains_prefix(keys(*range(54)))
    assert left == 54 - tier.statistics().evicted < 54


def test_of_a_prefix_larger_than_the_tier_the_beginning_is_kept(tier: StorageTier) -> None:
    fill(tier, *range(100, 120))
    written = tier.write(items(*range(80)))
    assert written == tier.contains_prefix(keys(*range(80))) > 45
    assert tier.statistics().num_pages <= written + 20


def test_a_page_larger_than_the_tier_is_not_written_and_evicts_nothing(tier: StorageTier) -> None:
    fill(tier, 1, 2)
    assert tier.write([(key(3), bytes(BOUND))]) == 0
    assert tier.contains_prefix(keys(1, 2)) == 2


def test_last_uses_are_remembered_over_a_restart(tmp_path: Path) -> None:
    tier = StorageTier.open(tmp_path, BOUND)
    fill(tier, *range(54))
    tier.read(keys(5))
    tier.touch(keys(7))
    tier.close()
    tier = StorageTier.open(tmp_path, BOUND)
    fill(tier, *range(100, 108))
    assert [n for n in range(8) if tier.contains_prefix(keys(n))] == [5, 7]
    tier.close()


def test_last_uses_are_written_with_pages_and_not_with_reads(
    tmp_path: Path, tier: StorageTier
) -> None:
    fill(tier, 1, 2)
    store = tier._store
    assert store is not None
    assert store.index.num_unsaved == 0
    before = store.file.rows()
    tier.read(keys(1))
    assert store.file.rows() == before
    tier.write(items(3))
    assert store.index.num_unsaved == 0
    assert [row.key for row in store.file.rows()] == keys(2, 1, 3)


@pytest.mark.slow
def test_a_smaller_bound_at_the_next_start_gives_disk_space_back(tmp_path: Path) -> None:
    tier = StorageTier.open(tmp_path, 2 * BOUND)
    fill(tier, *range(100))
    tier.close()
    assert disk_bytes(tmp_path) > 100 * MIB
    tier = StorageTier.open(tmp_path, BOUND)
    assert disk_bytes(tmp_path) <= BOUND
    num_pages = tier.statistics().num_pages
    held = keys(*range(100 - num_pages, 100))
    assert num_pages > 50
    assert tier.contains_prefix(held) == num_pages
    assert tier.read(held) == [payload(n) for n in range(100 - num_pages, 100)]
    tier.close()


def test_a_cleared_tier_is_empty_gives_disk_space_back_and_goes_on(
    tmp_path: Path, tier: StorageTier
) -> None:
    tier.write(items(*range(10)))
    tier.clear()
    assert tier.contains_prefix(keys(0)) == tier.statistics().num_pages == 0
    assert disk_bytes(tmp_path) < MIB
    assert tier.write(items(3)) == 1
    assert tier.read(keys(3)) == [payload(3)]


@pytest.mark.slow
def test_reads_writes_and_evictions_agree_with_a_dictionary(tmp_path: Path) -> None:
    """Random walks over far more pages than fit, with restarts."""
    rng, tier = Random(5), StorageTier.open(tmp_path, BOUND)
    for _ in range(150):
        first = rng.randrange(150)
        numbers = range(first, first + rng.randrange(1, 7))
        match rng.randrange(8):
            case 0:
                tier.close()
                tier = StorageTier.open(tmp_path, BOUND)
            case 1 | 2 | 3:
                sizes = [rng.choice((100, 9_000, 700_000, 3 * MIB)) for _ in numbers]
                tier.write(
                    [(key(n), payload(n, size)) for n, size in zip(numbers, sizes, strict=True)]
                )
            case _:
                expected = tier.contains_prefix(keys(*numbers))
                found = tier.read(keys(*numbers))
                assert None not in found[:expected]
                for number, page in zip(numbers, found, strict=True):
                    assert page is None or page == payload(number, len(page) // 4096 * 4096)
        assert disk_bytes(tmp_path) <= BOUND
    assert tier.statistics().damaged == 0
    tier.close()
