"""Lock on a run directory: one run at a time works in it, across processes, threads and containers that share it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.hardware.private import open_private

LOCK = "run.lock"
"""File in a run directory that a run at work has locked. In a temporary directory, whose path depends on the
environment, another run would not find it."""


@dataclass
class _Held:
    file: int
    thread: int
    made: bool
    times: int = 1


_held: dict[Path, _Held] = {}
_changing = threading.Lock()


@contextlib.contextmanager
def at_work(directory: Path) -> Iterator[None]:
    """Hold the lock on ``directory``, which is made if it is missing, for this thread as long as the context lasts.

    Raises:
        InputError: another process or thread holds it.
    """
    place = directory.resolve()
    _enter(place)
    try:
        yield
    finally:
        _leave(place)


def _enter(place: Path) -> None:
    me = threading.get_ident()
    with _changing:
        held = _held.get(place)
        if held is not None and held.thread == me:
            held.times += 1
            return
        if held is not None:
            raise _busy(place, os.getpid())
        made = not place.exists()
        place.mkdir(parents=True, exist_ok=True)
        _held[place] = _Held(_locked(place), me, made)


def _locked(place: Path) -> int:
    """A descriptor of the lock file in ``place``, locked."""
    while True:
        file = open_private(place / LOCK)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(place / LOCK)):
                    os.pwrite(file, f"{os.getpid():<20}".encode(), 0)
                    return file
        except OSError as error:
            by = os.pread(file, 20, 0).decode(errors="replace").strip()
            os.close(file)
            if isinstance(error, BlockingIOError):
                raise _busy(place, by) from None
            raise
        os.close(file)  # the run that held it has ended and removed it


def _leave(place: Path) -> None:
    with _changing:
        held = _held[place]
        held.times -= 1
        if not held.times:
            (place / LOCK).unlink(missing_ok=True)
            os.close(_held.pop(place).file)
            if held.made and not any(place.iterdir()):
                place.rmdir()


def _busy(place: Path, process: int | str) -> InputError:
    return InputError(
        f"a run is at work in {place} (process {process}): wait until it has ended, or choose another directory"
    )
