"""The comparison of stores runs, and finds what there is to find."""

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from bench.storage_engines import main


@pytest.mark.slow
def test_every_phase_of_the_comparison_gives_its_figures(tmp_path: Path) -> None:
    arguments = "--engines sqlite --pages 24 --page-bytes 737280 --kills 1 --directory".split()
    done = CliRunner().invoke(main, [*arguments, str(tmp_path)])
    assert done.exit_code == 0, done.output
    line = orjson.loads(done.stdout)
    assert line["shape"] == {"pages": 24, "page_bytes": 737_280, "batch_pages": 8}
    for phase in ("write", "read_cold", "read_warm", "reuse"):
        assert line[phase]["mb_s"] > 0
    assert 1.0 <= line["write"]["disk_ratio"] < 1.1
    assert line["reuse"]["disk_ratio_max"] < 1.5
    assert line["kill"]["times"] == 1
    assert line["kill"]["lost_pages"] == line["kill"]["wrong"] == 0
    # Two places of 8 MiB each are overwritten, and a store without checksums does not notice.
    assert line["flip"]["wrong"] > 0
    assert line["flip"]["right"] + line["flip"]["wrong"] == 24
    assert line["cut"] == {"open_error": "database disk image is malformed"}
    assert list(tmp_path.iterdir()) == []
