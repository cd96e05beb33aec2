"""Readers-writer lock for timing slots: jobs of one machine prepare side by side, and are timed one at a time.

Programs on other cores use shared caches and memory bandwidth, and some libraries suffer more than others: with
another run on the second core, SqueezeNet took 0 to 4 % longer on ONNX Runtime and 12 to 22 % on ncnn. Times measured
like this would rank placements differently.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collage_evo.hardware.presence import Doing, Presence, interruptible, present
from collage_evo.hardware.private import open_private

POLL_S = 0.002


class ExclusiveTiming:
    """One process's side of the lock, for ``run``; ``directory`` is the machine's, ``waiting`` is called every
    ``sign_s`` seconds of a wait.

    A process that prepares holds the lock in shared mode, one that times holds it exclusively. The turnstile blocks
    new preparations while a process waits to time. Both are file locks, so that the death of a process releases them.
    A process that compiles takes long and holds no lock, and no process waits for it: it is halted while another one
    times. So is a process that judges what it timed.
    """

    def __init__(
        self, directory: Path, waiting: Callable[[], None] = lambda: None, run: str = "", sign_s: float = 1.0
    ) -> None:
        self._turnstile, self._room = (open_private(directory / f"{name}.lock") for name in ("door", "room"))
        self._directory, self._waiting, self._sign_s = directory, waiting, sign_s
        self._presence = Presence(directory, run)
        self._halted: tuple[int, ...] = ()

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Context of a job: others may prepare too until :meth:`acquire_exclusive`; the rest of the context is
        exclusive."""
        self._lock(self._turnstile, fcntl.LOCK_EX)
        try:
            self._lock(self._room, fcntl.LOCK_SH)
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)
            self._presence.note(Doing.PREPARES)
            yield
        finally:
            self._let_go_on()
            self._presence.note(Doing.NOTHING)
            fcntl.flock(self._room, fcntl.LOCK_UN)
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Context of a compilation: it begins while nothing is timed, and the process is halted whenever something
        is."""
        self._presence.note(Doing.COMPILES)  # first: a process that begins to time from here on halts this one
        try:
            self._lock(self._room, fcntl.LOCK_SH, noting=False)
            fcntl.flock(self._room, fcntl.LOCK_UN)
            yield
        finally:
            self._presence.note(Doing.NOTHING)

    def acquire_exclusive(self) -> None:
        """Wait until no process of this machine prepares or times, and halt those that compile or judge, until the
        job ends or calls :meth:`release`."""
        self._lock(self._turnstile, fcntl.LOCK_SH)
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self._lock(self._room, fcntl.LOCK_EX)
        self._presence.note(Doing.TIMES)
        self._halted = interruptible(self._directory)
        for process in self._halted:
            _signal(process, signal.SIGSTOP)

    def release(self) -> None:
        """End the exclusive part: others may prepare and time again; this process is halted while another one
        times."""
        self._presence.note(Doing.JUDGES)  # first: a process that begins to time from here on halts this one
        self._let_go_on()
        fcntl.flock(self._room, fcntl.LOCK_UN)
        fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    def _let_go_on(self) -> None:
        for process in self._halted:
            _signal(process, signal.SIGCONT)
        self._halted = ()

    def _lock(self, file: int, how: int, noting: bool = True) -> None:
        last_sign, noted = time.monotonic(), not noting
        while True:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(file, how | fcntl.LOCK_NB)
            if not noted:
                noted = True
                self._presence.note(Doing.WANTS_TURN)
            if time.monotonic() - last_sign >= self._sign_s:
                last_sign = time.monotonic()
                self._waiting()
            time.sleep(POLL_S)


def go_on(directory: Path) -> None:
    """Resume halted processes after the process that timed has ended and cannot do so. If another process times by
    now, it has halted them too, and resumes them itself."""
    if any(note.doing is Doing.TIMES and note.process != os.getpid() for note in present(directory)):
        return
    for process in interruptible(directory):
        _signal(process, signal.SIGCONT)


def _signal(process: int, number: int) -> None:
    """Signal a worker process and its children; it may have ended, or belong to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, number)
