"""Who times does so alone: jobs of one machine are prepared side by side, and timed one at a time.

What runs on other cores takes its share of caches and memory, and some libraries mind more than others: with another
run on the second core, SqueezeNet took 0 to 4 % longer on ONNX Runtime and 12 to 22 % on ncnn.
Such times rank placements otherwise than they rank alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collage_evo.target.presence import Doing, Presence, interruptible, present
from collage_evo.target.private import open_private

POLL_S = 0.002
SIGN_S = 1.0
"""Somebody who waits says so this often."""


class ExclusiveTiming:
    """The part of one process of ``run``; ``directory`` is the machine's, ``waiting`` is called during a wait.

    Who prepares shares the room, who times has it alone. The door keeps new preparations out while somebody waits
    to time. Both are locks on files, so that nothing stays locked after a process that dies. Who compiles needs no
    room, takes long, and is waited for by nobody: its process is halted while somebody times. So is the process of
    who judges what it timed.
    """

    def __init__(self, directory: Path, waiting: Callable[[], None] = lambda: None, run: str = "") -> None:
        self._turnstile, self._room = (open_private(directory / f"{name}.lock") for name in ("door", "room"))
        self._directory, self._waiting = directory, waiting
        self._presence = Presence(directory, run)
        self._halted: tuple[int, ...] = ()

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Until :meth:`alone` others may do the same meanwhile; what follows in this context is done alone."""
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
        """What is compiled in this context begins while nobody times, and is halted whenever somebody does."""
        self._presence.note(Doing.COMPILES)  # first: who begins to time from here on halts it
        try:
            self._lock(self._room, fcntl.LOCK_SH, noting=False)
            fcntl.flock(self._room, fcntl.LOCK_UN)
            yield
        finally:
            self._presence.note(Doing.NOTHING)

    def acquire_exclusive(self) -> None:
        """Wait until nobody on this machine prepares or times, and halt who compiles or judges; it stays so until the
        job ends, or what is timed is :meth:`over`."""
        self._lock(self._turnstile, fcntl.LOCK_SH)
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self._lock(self._room, fcntl.LOCK_EX)
        self._presence.note(Doing.TIMES)
        self._halted = interruptible(self._directory)
        for process in self._halted:
            _signal(process, signal.SIGSTOP)

    def over(self) -> None:
        """From here on others may prepare and time again; this process is halted while somebody times."""
        self._presence.note(Doing.JUDGES)  # first: who begins to time from here on halts it
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
            if time.monotonic() - last_sign >= SIGN_S:
                last_sign = time.monotonic()
                self._waiting()
            time.sleep(POLL_S)


def go_on(directory: Path) -> None:
    """Let who was halted go on, after a process that timed has ended and cannot. Another that times by now halted
    them too, and lets them go on itself."""
    if any(note.doing is Doing.TIMES and note.process != os.getpid() for note in present(directory)):
        return
    for process in interruptible(directory):
        _signal(process, signal.SIGCONT)


def _signal(process: int, number: int) -> None:
    """To a measuring process and those that it started; it may have ended, or be another person's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, number)
