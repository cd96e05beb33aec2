"""Main loop of the server that forks worker processes, and what a worker does before its first job."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from typing import NoReturn

from collage_evo.codec import from_json
from collage_evo.fitness.exclusive import go_on
from collage_evo.fitness.worker import serve
from collage_evo.hardware.private import machine_directory

IDLE_S = 60.0
"""A server without workers waits so long for a request."""


def exit_with_parent(parent: int, scratch: str = "") -> None:
    """End this process soon after its parent has ended for whatever reason.

    Args:
        parent: the parent's process id: it may have ended before this process could read it.
        scratch: a directory to delete with this process, if any.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        go_on(machine_directory())
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def fork_on_request(requests: socket.socket) -> None:
    """Fork a worker process for each request. When the process that sends them ends, so do all workers.

    A request is the worker's temporary directory with four descriptors: its standard streams, and a pipe for its exit
    code. The answer is its process id, or the negative number of the system's error.
    """
    server = os.getpid()
    workers: dict[int, tuple[str, int]] = {}
    """Temporary directory and pipe by process id."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    gc.freeze()  # a collection in a worker does not copy the pages of what all share
    while True:
        ready, _, _ = select.select([requests, woken], [], [], None if workers else IDLE_S)
        if not ready:
            return
        if woken in ready:
            woken.recv(4096)
            for pid, code in _ended():
                _, status = workers.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(status, str(code).encode())
                os.close(status)
        if requests not in ready:
            continue
        scratch, streams, _, _ = socket.recv_fds(requests, 4096, 4)
        if not scratch:
            break
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            _work(server, os.fsdecode(scratch), streams)
        for one in streams[:3]:
            os.close(one)
        if pid > 0:
            with contextlib.suppress(OSError):  # the worker does so, too: whoever kills its group may be first
                os.setpgid(pid, pid)
            workers[pid] = os.fsdecode(scratch), streams[3]
        else:
            os.close(streams[3])
        requests.send(str(pid).encode())
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    for scratch_directory, _ in workers.values():
        shutil.rmtree(scratch_directory, ignore_errors=True)
    go_on(machine_directory())  # a worker may have been timing, with others halted


def _ended() -> Iterator[tuple[int, int]]:
    """Process ids and exit codes of children that ended, after what is left of their process groups was killed."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            pid = ended.si_pid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            yield pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work(server: int, scratch: str, streams: list[int]) -> NoReturn:
    """Be a worker process, in a fork of the server."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams[:3]):
            os.dup2(stream, number)
        # Native libraries print to standard output: answers get a descriptor of their own.
        os.dup2(1, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        os.dup2(2, 1)
        exit_with_parent(server, scratch)
        directory, environment = from_json(sys.stdin.readline(), tuple[str, dict[str, str]])
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        serve(sys.stdin, os.fdopen(3, "w"))
        code = 0
    except BaseException:  # a fork must not return into the server's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(code)


if __name__ == "__main__":
    fork_on_request(socket.socket(fileno=int(sys.argv[1])))
