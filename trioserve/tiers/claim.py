"""`DirectoryClaim`: a storage directory that is ours alone for as long as we hold it."""

import errno
import fcntl
import os
import stat
from pathlib import Path

from attrs import define

from trioserve.errors import ConfigError

FLAG = "--cache-storage"
_LOCK_NAME = "trioserve-cache.lock"


@define(eq=False)
class DirectoryClaim:
    """One process's right to a storage directory; made by `claim`, ended by `release`.

    The kernel ends it too when the process dies, however it dies. Rejected: letting two processes
    share a directory. Each would evict by its own idea of what was used last, and read pages that
    the other has just replaced.
    """

    directory: Path
    """Resolved: no symbolic link is left in it."""
    _descriptor: int | None

    def release(self) -> None:
        """Let the next process have the directory; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def claim(directory: Path) -> DirectoryClaim:
    """Make `directory` if need be and take it. Raises ConfigError: it is one clear line each.

    A new directory is open to its owner alone: cached pages can be turned back into prompts. One
    that every user may write to is refused, because a checksum does not tell a forged page.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolved = directory.resolve(strict=True)
        if resolved.stat().st_mode & stat.S_IWOTH:
            raise ConfigError(
                f"{FLAG}: {directory} may be written by every user; "
                "name a directory of the server's own, or take that permission away"
            )
        descriptor = open_private(resolved / _LOCK_NAME)
    except OSError as error:
        raise unusable(directory, error.strerror or str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode(errors="replace")
        os.close(descriptor)
        raise ConfigError(
            f"{FLAG}: {directory} is in use by process {holder or 'of another server'}; "
            "give each server a directory of its own"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise unusable(directory, error.strerror or str(error)) from error
    return DirectoryClaim(resolved, descriptor)


def open_private(path: Path) -> int:
    """A descriptor of the file, which is made, readable by its owner alone, if it is not there.

    Raises OSError, and ConfigError for what was put in the file's place to have us write elsewhere.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(
                f"{FLAG}: {path} is a symbolic link; remove it or name another directory"
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{FLAG}: {path} is not a file; remove it or name another directory")
    return descriptor


def unusable(directory: Path, why: str) -> ConfigError:
    """What a directory is refused with that the system does not let us use."""
    return ConfigError(
        f"{FLAG}: {directory} cannot be used ({why}); name a directory that the server may write to"
    )
