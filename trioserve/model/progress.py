"""Progress of a long load on stderr: a bar on a terminal, plain lines in a log file."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Progress:
    """Says what is being done. Nothing is written to standard output."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, message: str) -> None:
        """One line."""
        self._stream.write(f"trioserve: {message}\n")
        self._stream.flush()

    @contextmanager
    def bytes_of(self, message: str, total: int) -> Iterator[Callable[[int], None]]:
        """Give a function that is told of each number of bytes done."""
        if self._stream.isatty():
            with self._bar(message, total) as advance:
                yield advance
        else:
            yield self._lines(message, total)

    @contextmanager
    def _bar(self, message: str, total: int) -> Iterator[Callable[[int], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("trioserve: {task.description}"), BarColumn(), DownloadColumn())
        with Bars(*columns, TimeRemainingColumn(), console=Console(file=self._stream)) as bars:
            task = bars.add_task(message, total=total)
            yield lambda count: bars.advance(task, count)

    def _lines(self, message: str, total: int) -> Callable[[int], None]:
        """A line a quarter."""
        done = 0
        next_quarter = 1
        self.say(f"{message} (0 of {total / 1e6:.0f} MB)")

        def advance(count: int) -> None:
            nonlocal done, next_quarter
            done += count
            if done * 4 >= next_quarter * total:
                next_quarter = done * 4 // total + 1
                self.say(f"{message} ({done / 1e6:.0f} of {total / 1e6:.0f} MB)")

        return advance
