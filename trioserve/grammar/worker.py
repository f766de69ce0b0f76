"""The process that grammars are compiled in: it forks a child for each, which may be killed.

Started by `WorkerProcess` as `python -m trioserve.grammar.worker FD`. FD is a socket: its first
packets are the vocabulary, each later one brings the socket of a job. xgrammar is imported once
here, which takes seconds; a fork takes milliseconds, and takes nothing with it when it is killed.

A job's socket: the worker sends the child's number with its pidfd, the parent sends the constraint
and shuts down its side, the child sends one byte for success and the compiled grammar, or one for
failure and the reason. A child that dies says nothing.
"""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trioserve.grammar.errors import GrammarError
from trioserve.grammar.job import CompileJob
from trioserve.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    import xgrammar

LOWEST_PRIORITY = 19
CHILD_MEMORY_BYTES = 1 << 30
"""What a child may take beyond what the worker has."""
PACKET_BYTES = 1 << 16
READY = b"ready"
SUCCESS, FAILURE = b"+", b"-"
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the parent closes its socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C goes to the whole group: the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Children are reaped by the system.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    vocabulary = Vocabulary.from_json(_receive_packets(control))
    from trioserve.grammar.compilation import new_compiler

    compiler = new_compiler(vocabulary)
    gc.freeze()
    control.send(READY)
    while True:
        packet, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not packet:
            return
        with socket.socket(fileno=fds[0]) as job:
            pid = os.fork()
            if pid == 0:
                control.close()
                _run_child(compiler, vocabulary, job)
            with contextlib.suppress(OSError):  # it is gone already, or the parent is
                pidfd = os.pidfd_open(pid)
                try:
                    socket.send_fds(job, [child_packet(pid)], [pidfd])
                finally:
                    os.close(pidfd)


def child_packet(pid: int) -> bytes:
    """A child's number, always as long."""
    return b"%10d" % pid


def _receive_packets(control: socket.socket) -> bytes:
    """Everything up to an empty line, which is a packet of its own."""
    parts = []
    while (packet := control.recv(PACKET_BYTES)) != b"\n":
        if not packet:
            sys.exit()
        parts.append(packet)
    return b"".join(parts)


def _run_child(
    compiler: "xgrammar.GrammarCompiler", vocabulary: Vocabulary, job: socket.socket
) -> None:
    """Compile one grammar. Never returns."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.nice(LOWEST_PRIORITY)
        # To the scheduler a core that does this is as good as idle. Beside a merely nice process,
        # it moved the model's threads away from that core, onto each other: steps took half as long
        # again.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        _limit_memory()
        # xgrammar writes warnings there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.setrecursionlimit(2000)
        job.sendall(_compile(compiler, vocabulary, job))
    finally:
        os._exit(0)


def _compile(
    compiler: "xgrammar.GrammarCompiler", vocabulary: Vocabulary, job: socket.socket
) -> bytes:
    from trioserve.grammar.compilation import compile_constraint

    parts = []
    while part := job.recv(PACKET_BYTES):
        parts.append(part)
    spec = CompileJob.from_json(b"".join(parts))
    try:
        compiled = compile_constraint(compiler, vocabulary, spec.constraint, spec.max_spaces)
    except GrammarError as error:
        return FAILURE + error.detail.encode()
    except Exception as error:  # a mistake of ours, and still no reason to serve without a grammar
        return FAILURE + f"{type(error).__name__}: {error}".encode()
    return SUCCESS + compiled.serialize_json().encode()


def _limit_memory() -> None:
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = num_pages * resource.getpagesize() + CHILD_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
