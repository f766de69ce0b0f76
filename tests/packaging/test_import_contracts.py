"""Every import contract is active: break its rule, and it breaks."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
CONTRACTS = [contract["name"] for contract in TOOLS["importlinter"]["contracts"]]

VIOLATIONS = {
    "The rooms are layered": ("trioserve/kv/pool.py", "import trioserve.engine"),
    "The scheduler and the pages are pure Python, and know no device": (
        "trioserve/scheduler/plan.py",
        "import torch",
    ),
    "What runs on the device's thread does not know Trio": (
        "trioserve/runner/__init__.py",
        "import trio",
    ),
    "Text needs neither torch nor Trio": ("trioserve/text/stops.py", "import torch"),
    "Kernels stand alone": (
        "kernels/trioserve_kernels/__init__.py",
        "import trioserve.core",
    ),
    "Quart and Hypercorn come in through the HTTP side": (
        "trioserve/a_new_room/__init__.py",
        "from hypercorn.trio import serve",
    ),
    "Kernels come in through device.ops": (
        "trioserve/model/spec.py",
        "import trioserve_kernels.linear",
    ),
    "CUDA comes in through the device": ("trioserve/runner/__init__.py", "import triton"),
    "xgrammar comes in through grammars": ("trioserve/model/spec.py", "import xgrammar"),
    "The nouns that all share import no room": ("trioserve/core.py", "import trioserve.kv.pool"),
    "Text knows no room, and no settings": ("trioserve/text/stops.py", "import trioserve.config"),
}


@pytest.mark.slow
def test_every_import_contract_breaks_when_its_rule_is_broken(tmp_path: Path) -> None:
    # Not what other processes write there meanwhile.
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("trioserve", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, line in VIOLATIONS.values():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        with (tmp_path / path).open("a") as file:
            file.write(f"\n{line}\n")
    # The copy has to come before the installed one on the path.
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{tmp_path / 'kernels'}"}
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    kept = [name for name in CONTRACTS if f"{name} BROKEN" not in done.stdout]
    assert kept == [], done.stdout + done.stderr
    assert set(VIOLATIONS) == set(CONTRACTS)
