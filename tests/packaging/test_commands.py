"""README, justfile and CI say the same."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CI = ROOT / ".ci" / "run"


def command(name: str) -> str:
    """The block below the marker of that name."""
    found = re.search(rf"<!-- {name}-command -->\n```sh\n(.*?)\n```\n", README, re.DOTALL)
    assert found is not None
    return found[1]


def run_ci(folder: Path, readme: str, failing: str = "none") -> subprocess.CompletedProcess[str]:
    """Runs CI's script where `python3`, `pip`, `python` and `just` only say that they ran.

    The one that is run with the arguments `failing` fails. `just test` leaves set-up's stamp.
    """
    (folder / ".ci").mkdir()
    shutil.copy(CI, folder / ".ci")
    (folder / "README.md").write_text(readme)
    log, bin_folder = folder / "log", folder / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    stamp = bin_folder.parent / "setup-stamp"
    for name in ("python3", "pip", "python", "just"):
        stub = f'#!/bin/sh\necho "{name} $*" >>"{log}"\n[ "$*" != "$FAILING" ] || exit 1\n'
        if name == "just":
            stub += f'[ "$*" != test ] || touch "{stamp}"\n'
        (bin_folder / name).write_text(stub)
        (bin_folder / name).chmod(0o755)
    environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "FAILING": failing}
    return subprocess.run(
        [folder / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False
    )


def test_both_commands_set_up_everything_from_python_and_pip() -> None:
    start = "python3 -m venv .venv && .venv/bin/pip install -q rust-just && .venv/bin/just "
    assert command("serve") == start + "serve"
    assert command("test") == start + "test"


def test_ci_runs_the_test_command_of_the_readme_and_then_the_rest(tmp_path: Path) -> None:
    done = run_ci(tmp_path, README)
    assert done.returncode == 0, done.stderr
    assert f"+ {command('test')}" in done.stdout
    log = (tmp_path / "log").read_text().splitlines()
    assert log[:3] == ["python3 -m venv .venv", "pip install -q rust-just", "just test"]
    beside = ["just static", "just test tests/correctness", "python -m tests.clients.environments"]
    assert sorted(log[3:]) == sorted([*beside, "just test-clients"])
    assert log.index(beside[2]) < log.index("just test-clients")


def test_ci_leaves_nothing_out_of_the_test_command_but_what_runs_beside_it() -> None:
    script = CI.read_text()
    assert re.findall(r"PYTEST_ADDOPTS=(\S+)", script) == ['"--ignore=tests/correctness"']
    assert "\nbeside correctness .venv/bin/just test tests/correctness\n" in script


@pytest.mark.parametrize(
    "failing",
    [
        "-m venv .venv",
        "install -q rust-just",
        "test",
        "test tests/correctness",
        "-m tests.clients.environments",
        "test-clients",
        "static",
    ],
)
def test_ci_is_red_when_any_part_fails(tmp_path: Path, failing: str) -> None:
    assert run_ci(tmp_path, README, failing).returncode != 0
    assert failing in (tmp_path / "log").read_text()


def test_ci_is_red_when_the_readme_has_no_test_command(tmp_path: Path) -> None:
    done = run_ci(tmp_path, README.replace("<!-- test-command -->", ""))
    assert done.returncode != 0
    assert "no test command" in done.stderr


def test_check_is_what_ci_runs() -> None:
    justfile = (ROOT / "justfile").read_text()
    recipe = re.compile(r"^([a-z-]+)(?: [^\n:]*)?:(?!=)([^\n]*)$", re.MULTILINE)
    needs = {name: parts.split() for name, parts in recipe.findall(justfile)}
    assert needs["check"] == ["static", "test"]
    assert needs["static"] == ["fmt-check", "lint", "types", "imports"]
    for name in ["serve", "test", "test-slow", "test-gpu", "bench", "fmt", *needs["static"]]:
        assert needs[name] == ["setup"], name
