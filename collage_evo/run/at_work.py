"""Lock on a run directory: one run at a time works in it, across processes and threads."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.target.private import machine_directory, open_private


@dataclass
class _Held:
    file: int
    thread: int
    times: int = 1


_held: dict[Path, _Held] = {}
_changing = threading.Lock()


@contextlib.contextmanager
def at_work(directory: Path) -> Iterator[None]:
    """Hold the lock on ``directory`` for this thread, machine-wide, as long as the context lasts.

    Raises:
        InputError: another process or thread holds it.
    """
    place = directory.resolve()
    _enter(place)
    try:
        yield
    finally:
        _leave(place)


def require_idle(directory: Path) -> None:
    """Require that no run is at work in ``directory``.

    Raises:
        InputError: one is.
    """
    with at_work(directory):
        pass


def _enter(place: Path) -> None:
    me = threading.get_ident()
    with _changing:
        held = _held.get(place)
        if held is not None and held.thread == me:
            held.times += 1
            return
        if held is not None:
            raise _busy(place, os.getpid())
        name = hashlib.sha256(os.fsencode(place)).hexdigest()[:32]
        file = open_private(machine_directory() / f"run-{name}")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            by = os.pread(file, 20, 0).decode(errors="replace").strip()
            os.close(file)
            raise _busy(place, by) from None
        os.pwrite(file, f"{os.getpid():<20}".encode(), 0)
        _held[place] = _Held(file, me)


def _leave(place: Path) -> None:
    with _changing:
        held = _held[place]
        held.times -= 1
        if not held.times:
            os.close(_held.pop(place).file)


def _busy(place: Path, process: int | str) -> InputError:
    return InputError(
        f"a run is at work in {place} (process {process}): wait until it has ended, or choose another directory"
    )
