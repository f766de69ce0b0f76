"""Whose directory it is: one process's at a time, private, and refused with a line that helps."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiers.kit import BOUND, child, items, keys, line
from trioserve.errors import ConfigError
from trioserve.tiers.page_file import FILE_NAME
from trioserve.tiers.storage import StorageTier


def refusal(directory: Path) -> str:
    """The line with which the directory is refused."""
    with pytest.raises(ConfigError) as caught:
        StorageTier.open(directory, BOUND)
    message = str(caught.value)
    assert message.startswith("--cache-storage: ")
    assert "\n" not in message
    return message.removeprefix("--cache-storage: ")


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    (tmp_path / "alias").symlink_to(directory)
    with child("hold", directory) as first:
        assert line(first) == "held"
        for name in (directory, tmp_path / "alias"):
            with child("hold", name) as second:
                assert line(second) == (
                    f"--cache-storage: {name} is in use by process {first.pid}; "
                    "give each server a directory of its own"
                )
                assert second.wait() == 2
        assert f"is in use by process {first.pid}" in refusal(directory)
        # However it dies, the next one has the directory.
        first.kill()
        first.wait()
        tier = StorageTier.open(directory, BOUND)
        assert f"is in use by process {os.getpid()}" in refusal(directory)
        tier.close()
        with child("hold", directory) as third:
            assert line(third) == "held"


def test_a_new_directory_and_its_files_are_private(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "cache"
    tier = StorageTier.open(directory, BOUND)
    tier.write(items(1))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    tier.close()


def test_a_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    tier = StorageTier.open(tmp_path / "link", BOUND)
    tier.write(items(1))
    tier.close()
    tier = StorageTier.open(tmp_path / "real", BOUND)
    assert tier.contains_prefix(keys(1)) == 1
    tier.close()


@pytest.mark.parametrize("name", [FILE_NAME, "trioserve-cache.lock"])
def test_a_link_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    directory = tmp_path / "cache"
    directory.mkdir()
    (directory / name).symlink_to(target)
    assert refusal(directory) == (
        f"{directory / name} is a symbolic link; remove it or name another directory"
    )
    assert target.read_text() == "precious"
    # The refused start has let the directory go.
    (directory / name).unlink()
    StorageTier.open(directory, BOUND).close()


@pytest.mark.parametrize("name", [FILE_NAME, "trioserve-cache.lock"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert refusal(tmp_path) == (
        f"{tmp_path / name} is not a file; remove it or name another directory"
    )


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("file", "file/below", "dangling"):
        assert refusal(tmp_path / name).startswith(f"{tmp_path / name} cannot be used (")


def test_a_directory_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(0o777)
    assert "may be written by every user" in refusal(directory)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory of another user's, and this process without root's rights, if it has them."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    (place / "cache").mkdir(mode=0o500)
    is_root = os.geteuid() == 0
    if is_root:
        (place / "cache").chmod(0o755)
        os.seteuid(65_534)
    try:
        yield place / "cache"
    finally:
        if is_root:
            os.seteuid(0)
        (place / "cache").chmod(0o700)
        shutil.rmtree(place)


def test_a_directory_that_may_not_be_written_is_refused(unprivileged: Path) -> None:
    for directory in (unprivileged, unprivileged / "below"):
        assert refusal(directory) == (
            f"{directory} cannot be used (Permission denied); "
            "name a directory that the server may write to"
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_file_of_another_users_is_refused(unprivileged: Path) -> None:
    os.seteuid(0)
    (unprivileged / FILE_NAME).write_bytes(b"")
    (unprivileged / FILE_NAME).chmod(0o600)
    os.chown(unprivileged, 65_534, 65_534)
    os.seteuid(65_534)
    assert "cannot be used (Permission denied)" in refusal(unprivileged)
