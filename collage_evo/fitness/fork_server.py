"""Fork server: a process that has imported the modules of a worker, and forks the worker processes of this one.

Importing takes half a second of processor time, and a run starts dozens of workers. The server
(:func:`collage_evo.fitness.process.fork_on_request`) has one thread and loads no library of a backend: their threads
would not survive a fork. It ends after a minute without workers.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import IO, TextIO

from collage_evo.codec import to_json
from collage_evo.modules import module_command, module_environment

_READ_AT_START = ("LD_", "GLIBC_", "MALLOC_", "PYTHON", "OPENBLAS_", "NPY_", "COLLAGE_EVO_")
"""Prefixes of the variables that a process reads while it starts or imports the modules. Workers that differ in them
have different servers."""


class WorkerProcess:
    """A forked worker process, which leads a process group of its own.

    Args:
        pid: its process id.
        stdin: its standard input.
        stdout: its standard output.
        status: a pipe into which the server writes its exit code.
        server: the server lives as long as its workers.
    """

    def __init__(self, pid: int, stdin: TextIO, stdout: TextIO, status: int, server: ForkServer) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self._status = status
        self._server = server
        self._code: int | None = None
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._exit_code(0.0)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self._exit_code(None)
        assert code is not None
        return code

    def kill(self) -> None:
        """Kill its process group. The server does so with what is left of the group of a process that ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _exit_code(self, timeout_s: float | None) -> int | None:
        with self._reading:
            if self._code is None and select.select([self._status], [], [], timeout_s)[0]:
                # The pipe is empty if the server was killed: its workers notice and end.
                self._code = int(os.read(self._status, 16) or -signal.SIGKILL)
                os.close(self._status)
            return self._code


class ForkServer:
    """A server for workers that start with these variables, in the interpreter ``python`` (empty: this one). It ends
    with this object, and its workers with it."""

    def __init__(self, environment: Mapping[str, str], python: str = "") -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._asking = threading.Lock()
        with theirs:
            # A process group of its own: Ctrl-C reaches only the process in the user's terminal. In the same session:
            # if that one is killed while a worker is halted, the system ends the worker, too.
            self._process = subprocess.Popen(
                [*module_command("collage_evo.fitness.process", python), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        weakref.finalize(self, _end, self._socket, self._process)

    def fork(self, scratch: str, stderr: int) -> WorkerProcess | None:
        """A worker process, whose first line of input is its environment, or None if the server has ended.

        Args:
            scratch: a directory that is deleted if this process is killed.
            stderr: where the worker writes what libraries print.

        Raises:
            OSError: the system starts no more processes.
        """
        stdin, jobs = os.pipe()
        answers, stdout = os.pipe()
        status, ended = os.pipe()
        try:
            with self._asking:
                socket.send_fds(self._socket, [os.fsencode(scratch)], (stdin, stdout, stderr, ended))
                reply = int(self._socket.recv(16) or 0)
        except (BrokenPipeError, ConnectionResetError):
            reply = 0
        finally:
            for one in (stdin, stdout, ended):
                os.close(one)
        if reply > 0:
            return WorkerProcess(reply, os.fdopen(jobs, "w"), os.fdopen(answers), status, self)
        for one in (jobs, answers, status):
            os.close(one)
        if reply < 0:
            raise OSError(-reply, os.strerror(-reply))
        return None

    def last_words(self) -> str:
        """The exit code of a server that ended, and the last line that it wrote."""
        return describe_end(self._process.wait(), self._errors)


def _end(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()  # the server ends its workers and itself when nothing more can come
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def describe_end(code: int, errors: IO[bytes]) -> str:
    """The exit code of a process, and the last line that it wrote to the file ``errors``."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return f"exit code {code}: {lines[-1] if lines else 'nothing on standard error'}"


_current: dict[str, tuple[object, ForkServer]] = {}
"""The server of each interpreter, and what it was started for."""
_changing = threading.Lock()


def start_server(variables: Mapping[str, str], python: str = "") -> tuple[ForkServer, dict[str, str]]:
    """The server of workers with these additions to this process's environment, started if necessary without waiting
    until it is ready; and that environment. ``python``: the interpreter; empty for this one."""
    environment = {**module_environment(), **variables}
    at_start = {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}
    key = (os.getpid(), at_start)  # a fork of this process does not share its server
    with _changing:
        if python not in _current or _current[python][0] != key:
            _current[python] = (key, ForkServer(environment, python))
        return _current[python][1], environment


def start_worker(scratch: str, stderr: int, variables: Mapping[str, str], python: str = "") -> WorkerProcess:
    """Start a worker process in the directory and environment of this one.

    Args:
        scratch: its directory for temporary files, deleted if this process is killed.
        stderr: a descriptor for its errors.
        variables: additions to its environment.
        python: the interpreter; empty for this one.

    Raises:
        ChildProcessError: the server does not start.
        OSError: the system starts no more processes.
    """
    for _ in range(2):  # the system may have killed the server
        server, environment = start_server(variables, python)
        process = server.fork(scratch, stderr)
        if process is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended, which the first job finds out
                process.stdin.write(to_json((os.getcwd(), environment)) + "\n")
                process.stdin.flush()
            return process
        with _changing:
            if python in _current and _current[python][1] is server:
                del _current[python]
    raise ChildProcessError(server.last_words())
