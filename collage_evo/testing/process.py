"""Processes for checks that may crash or hang: a death is a finding."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

from collage_evo.backends.base import Backend
from collage_evo.testing import examine
from collage_evo.testing.examine import Piece
from collage_evo.testing.finding import Finding, raised
from collage_evo.testing.indices import like_onnxruntime

_SLICE_S = 0.5
_FRAME = re.compile(r'^(Current thread|Thread) .*\n  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
"""Location of a thread in faulthandler's output."""
_START_S = 120.0
"""Seconds for a process to import its modules, whatever the limit of a check: on a busy machine that takes long."""

Task = Literal["examine", "reload", "errors", "threads", "indices", "open"]


class CheckProcess:
    """One process, started when first needed and again after it died.

    Args:
        backend: the checked one; its class must be one that another process can import.
        timeout_s: a process silent for longer is killed.
        environment: variables set for its library, as returned by :meth:`Backend.environment`; the user's
            own values stay.
    """

    def __init__(self, backend: Backend, timeout_s: float, environment: Mapping[str, str]) -> None:
        self._backend = backend
        self._timeout = timeout_s
        self._environment = environment
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._stacks = Path()
        """Where the process writes what its threads did when it crashed."""

    def do(self, task: Task, piece: Piece, workdir: Path) -> Iterator[Finding]:
        """The findings of one task, each as it is made; a crash or a hang fails the check in which it happened."""
        connection = self._started()
        check = "build" if task == "examine" else task
        try:
            connection.send((task, piece, str(workdir)))
            while self._answers(connection, self._timeout):
                message = connection.recv()
                if message is None:
                    return
                if isinstance(message, Finding):
                    yield message
                elif message:
                    check = message
            reason = f"hung: nothing for {self._timeout:g} s"
        except (EOFError, OSError):
            reason = "crash"
        yield Finding(check, piece.name, "failed", self._death(reason))

    def _answers(self, connection: Connection, timeout_s: float) -> bool:
        """Whether a message arrives in time; in short waits, so that suspending the machine does not count as a
        hang."""
        slices = max(1, round(timeout_s / _SLICE_S))
        return any(connection.poll(_SLICE_S) for _ in range(slices))

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
            self._stacks.unlink()
        self._process = self._connection = None

    def _started(self) -> Connection:
        if self._connection is None:
            context = get_context("spawn")
            self._connection, theirs = context.Pipe()
            number, name = tempfile.mkstemp(prefix="stacks-")
            os.close(number)
            self._stacks = Path(name)
            given = (self._backend, theirs, self._environment, self._stacks)
            self._process = context.Process(target=_serve, args=given, daemon=True)
            self._process.start()
            theirs.close()
            self._answers(self._connection, _START_S)  # otherwise the first check fails
        return self._connection

    def _death(self, reason: str) -> str:
        assert self._process is not None
        if reason == "crash":
            self._process.join()
            code = self._process.exitcode or 0
            ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            stacks = self._stacks.read_text(errors="replace")
            sys.stderr.write(stacks)
            reason = f"crash: {ended}{where(stacks)}"
        self.close()
        return reason


def where(stacks: str) -> str:
    """The line of Python in which a process crashed and those of its other threads, without waiting ones.

    Args:
        stacks: faulthandler's output, or empty.
    """
    frames = [(who, f"{Path(file).name}:{line} {function}") for who, file, line, function in _FRAME.findall(stacks)]
    crashed = [place for who, place in frames if who == "Current thread"] or ["a thread that runs no Python"]
    others = [place for who, place in frames if who == "Thread" and not place.startswith("threading.py")]
    others_text = f", others in {', '.join(others)}" if others else ""
    return f" in {crashed[0]}{others_text}" if stacks else ""


def _serve(backend: Backend, connection: Connection, environment: Mapping[str, str], stacks: Path) -> None:
    faulthandler.enable(stacks.open("w"))
    for variable, value in environment.items():
        os.environ.setdefault(variable, value)
    connection.send("")  # it has started, and runs no check yet
    while True:
        try:
            task, piece, workdir = connection.recv()
        except EOFError:
            return
        check = [task if task != "examine" else "build"]

        def begin(name: str, check: list[str] = check) -> None:
            check[0] = name
            connection.send(name)

        try:
            for finding in _findings(task, backend, piece, Path(workdir), begin):
                connection.send(finding)
        except Exception as error:  # a backend may raise anything: this is what the suite checks
            connection.send(Finding(check[0], piece.name, "failed", raised(error)))
        connection.send(None)


def _findings(
    task: Task, backend: Backend, piece: Piece, workdir: Path, begin: examine.Begin
) -> Iterator[Finding]:
    match task:
        case "examine":
            yield from examine.examine(backend, piece, workdir, begin)
        case "reload":
            yield examine.reload(backend, piece, workdir)
        case "errors":
            yield examine.refuses(backend, piece, workdir)
        case "threads":
            yield examine.threads(backend, piece, workdir)
        case "indices" | "open":
            yield like_onnxruntime(task, backend, piece, workdir, begin)
