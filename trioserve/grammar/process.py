"""`WorkerProcess`: the parent's side of the process that compiles grammars."""

import os
import signal
import socket
import subprocess
import sys
from array import array
from functools import partial
from pathlib import Path

import trio
from attrs import define, field

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.job import CompileJob
from trioserve.grammar.vocabulary import Vocabulary
from trioserve.grammar.worker import FAILURE, PACKET_BYTES, READY, child_packet

MAX_RESULT_BYTES = 32 * 1024 * 1024
START_TIMEOUT_S = 120.0
"""Importing what the worker needs takes seconds, and much longer on a busy machine."""


class WorkerLost(Exception):
    """The worker is not there any more; another one may be started."""


@define(eq=False)
class WorkerProcess:
    """Started in one call, ended by `close`; each `compile` has a child of its own."""

    _process: "subprocess.Popen[bytes]"
    _control: trio.socket.SocketType
    is_lost: bool = field(init=False, default=False)

    @classmethod
    async def start(cls, vocabulary: Vocabulary) -> "WorkerProcess":
        """A worker that is ready. A checkpoint; cancelled, it leaves none. Raises WorkerLost."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                process = await trio.to_thread.run_sync(partial(_spawn, theirs.fileno()))
            except OSError as error:  # no memory, or no process is left
                ours.close()
                raise WorkerLost(str(error)) from error
            except BaseException:
                ours.close()
                raise
        worker = cls(process, trio.socket.from_stdlib_socket(ours))
        try:
            with trio.fail_after(START_TIMEOUT_S):
                await worker._send_vocabulary(vocabulary)
        except (OSError, trio.TooSlowError) as error:
            worker.close()
            raise WorkerLost(str(error)) from error
        except BaseException:
            worker.close()
            raise
        return worker

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def compile(self, job: CompileJob) -> bytes:
        """The serialized grammar of a job. A checkpoint.

        Cancelled, or whatever else ends it, the child is dead when this returns. Raises
        GrammarError, or WorkerLost.
        """
        ours, theirs = socket.socketpair()
        pid, pidfd = 0, None
        with trio.socket.from_stdlib_socket(ours) as child:
            try:
                with theirs:
                    await self._send_job(theirs)
                pid, pidfd = await self._receive_child(child)
                await _send_all(child, job.to_json())
                return await self._read_result(child)
            except (BrokenPipeError, ConnectionResetError):
                # The child has died: out of memory, mostly.
                raise GrammarError(TOO_COMPLEX) from None
            except trio.Cancelled:
                if pidfd is not None:
                    job.cpu_s = _cpu_s(pid)
                raise
            finally:
                if pidfd is not None:
                    _kill(pidfd)

    def close(self) -> None:
        """End the worker and its children. Idempotent, not a checkpoint."""
        self.is_lost = True
        self._control.close()
        # Its children end with it.
        self._process.kill()
        self._process.wait()

    async def _send_vocabulary(self, vocabulary: Vocabulary) -> None:
        text = await trio.to_thread.run_sync(vocabulary.to_json)
        for begin in range(0, len(text), PACKET_BYTES // 2):
            await self._control.send(text[begin : begin + PACKET_BYTES // 2])
        await self._control.send(b"\n")
        if await self._control.recv(len(READY)) != READY:
            raise WorkerLost("the grammar worker ended while it started")

    async def _send_job(self, theirs: socket.socket) -> None:
        fds = array("i", [theirs.fileno()])
        try:
            await self._control.sendmsg([b"j"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except OSError as error:
            self.is_lost = True
            raise WorkerLost(str(error)) from error

    async def _receive_child(self, child: trio.socket.SocketType) -> tuple[int, int]:
        """The child's number, and its pidfd."""
        size = len(child_packet(0))
        packet, ancillary, _, _ = await child.recvmsg(size, socket.CMSG_SPACE(array("i").itemsize))
        if not packet:
            self.is_lost = True
            raise WorkerLost("the grammar worker gave no child")
        (_, _, data), *_ = ancillary
        return int(packet), array("i", data)[0]

    async def _read_result(self, child: trio.socket.SocketType) -> bytes:
        parts, num_bytes = [], 0
        while part := await child.recv(PACKET_BYTES):
            parts.append(part)
            num_bytes += len(part)
            if num_bytes > MAX_RESULT_BYTES:
                raise GrammarError(TOO_COMPLEX)
        result = b"".join(parts)
        if not result:
            raise GrammarError(TOO_COMPLEX)
        if result[:1] == FAILURE:
            raise GrammarError(result[1:].decode())
        return result[1:]


def _spawn(fd: int) -> "subprocess.Popen[bytes]":
    # One thread each: a fork takes only the thread that forks, and what the others hold stays held.
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", "trioserve.grammar.worker", str(fd)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[fd],
        env={**os.environ, **single},
    )


async def _send_all(child: trio.socket.SocketType, data: bytes) -> None:
    sent = 0
    while sent < len(data):
        sent += await child.send(data[sent:])
    child.shutdown(socket.SHUT_WR)


def _cpu_s(pid: int) -> float | None:
    """Of a child that has not ended; of one that has, anything."""
    try:
        # The name before it is in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended
    finally:
        os.close(pidfd)
