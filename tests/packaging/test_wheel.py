"""What an installed trioserve consists of."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel built from a copy, since a build leaves its traces where it works."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("trioserve", "kernels", "tests", "bench"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder,
        source,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return set(wheel.namelist())


@pytest.mark.slow
def test_wheel_holds_trioserve_and_its_kernels_and_nothing_else(wheel_names: set[str]) -> None:
    top_level = {name.split("/")[0] for name in wheel_names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {
        "trioserve",
        "trioserve_kernels",
    }


@pytest.mark.slow
def test_wheel_holds_every_module(wheel_names: set[str]) -> None:
    modules = {
        path.relative_to(base).as_posix()
        for base, package in ((ROOT, "trioserve"), (ROOT / "kernels", "trioserve_kernels"))
        for path in (base / package).rglob("*.py")
    }
    assert modules - wheel_names == set()
    assert "trioserve/py.typed" in wheel_names


def test_command_is_named_for_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"trioserve": "trioserve.cli:main"}
