"""A process that is killed while it writes leaves what it had written, and nothing wrong."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.tiers.child import NUM_PAGES, PAGE_BYTES, numbers_of
from tests.tiers.kit import BOUND, child, keys, line, payload
from trioserve.tiers.storage import StorageTier

KILLS = 20


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_kill_during_writes_leads_to_a_wrong_page_or_a_lost_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng, batch = Random(4), 0
    for _ in range(KILLS):
        with child("write", tmp_path, batch) as writer:
            printed = [line(writer)]
            try:
                # Not a sleep to wait for something: the moment of death is what is drawn.
                writer.wait(timeout=rng.uniform(0, 0.15))
            except subprocess.TimeoutExpired:
                writer.kill()
            assert writer.stdout is not None
            printed += writer.stdout.read().split("\n")
        # What comes after the last end of line is a number cut short.
        batch = int(printed[-2] if len(printed) > 2 else printed[0])
        tier = StorageTier.open(tmp_path, BOUND)
        # The newest batch that was acknowledged is there, whole.
        assert tier.contains_prefix(keys(*numbers_of(batch))) == len(numbers_of(batch))
        found = tier.read(keys(*range(NUM_PAGES)))
        for number, page in enumerate(found):
            assert page is None or page == payload(number, PAGE_BYTES)
        statistics = tier.statistics()
        assert statistics.is_on
        assert statistics.damaged == 0
        assert statistics.num_pages == sum(page is not None for page in found)
        tier.close()
        batch += 1
    assert batch > 2 * KILLS
    assert caplog.records == []
