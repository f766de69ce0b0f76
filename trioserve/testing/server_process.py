"""A real server as a child process, for tests of what only a process can show."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import h11
import trio

from trioserve.testing.http import HttpClient, HttpResponse

_POLL_S = 0.02


def free_port() -> int:
    """A TCP port of the loopback address that nobody uses at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class ServerProcess:
    """A child process that serves on `port`; leaving the context kills what is left of it.

    Output goes to a file, so the child never waits for a reader. Every wait has a limit and fails
    with the output so far.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        port: int,
        env: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.port = port
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115  # closed by __exit__
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            cwd=directory,
            # Hypercorn has worker processes of its own: one group, so that none outlives the test.
            start_new_session=True,
        )

    @classmethod
    def hypercorn(
        cls,
        application: str,
        *flags: str,
        env: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> "ServerProcess":
        """A stock Hypercorn that serves `application` (`module:name`) on a free port."""
        port = free_port()
        command = [sys.executable, "-m", "hypercorn", "--bind", f"{cls.host}:{port}"]
        return cls([*command, *flags, application], port=port, env=env, directory=directory)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    @property
    def output(self) -> str:
        """All that the process has printed so far, on both streams."""
        return Path(self._log.name).read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        """None while the process runs."""
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """To the process that was started, not to its children."""
        self._process.send_signal(number)

    async def connect(self, *, receive_buffer_len: int | None = None) -> HttpClient:
        return await HttpClient.connect(self.host, self.port, receive_buffer_len=receive_buffer_len)

    async def get(self, target: str) -> HttpResponse:
        """One GET on a connection of its own."""
        async with await self.connect() as client:
            return await client.get(target)

    async def wait_ready(self, target: str, *, status: int = 200, timeout_s: float = 30.0) -> None:
        """Until a GET of the target gives the status."""

        async def is_ready() -> bool:
            assert self.exit_code is None, f"ended with {self.exit_code}:\n{self.output}"
            try:
                return (await self.get(target)).status == status
            except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError):
                return False  # not listening yet, or closing

        await self._wait(is_ready, timeout_s, f"{target} did not answer {status}")

    async def wait_output(self, text: str, *, timeout_s: float = 10.0) -> None:
        """Until the process has printed the text."""

        async def is_printed() -> bool:
            return text in self.output

        await self._wait(is_printed, timeout_s, f"{text!r} was not printed")

    async def wait_exit(self, *, timeout_s: float = 10.0) -> int:
        """The exit code; negative for a signal."""

        async def is_over() -> bool:
            return self.exit_code is not None

        await self._wait(is_over, timeout_s, "did not end")
        assert self.exit_code is not None
        return self.exit_code

    async def _wait(
        self, condition: Callable[[], Awaitable[bool]], timeout_s: float, failure: str
    ) -> None:
        try:
            await wait_until(condition, timeout_s=timeout_s)
        except trio.TooSlowError:
            raise AssertionError(f"{failure} within {timeout_s:g} s:\n{self.output}") from None


async def wait_until(condition: Callable[[], Awaitable[bool]], *, timeout_s: float) -> None:
    """Asks again and again, because another process tells nobody; raises TooSlowError."""
    with trio.fail_after(timeout_s):
        while not await condition():  # noqa: ASYNC110  # the event would be in that process
            await trio.sleep(_POLL_S)
