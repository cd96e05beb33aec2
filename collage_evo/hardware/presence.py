"""Presence notes of the processes at work on this machine, which show what a waiting run waits for.

Each measuring process writes a note to a file. A note is valid as long as its file is locked, and the system unlocks
it when its process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from collage_evo.codec import from_json, to_json
from collage_evo.errors import InputError
from collage_evo.hardware.private import open_private

SOON_S = 2.0
"""A wait is reported when it has lasted so long ..."""
AGAIN_S = 30.0
"""... and again after so long."""
MEASURING = b"collage_evo.fitness.process"
"""The module of a measuring process, as its command line has it."""
_numbers = itertools.count()


class Doing(StrEnum):
    """A process's activity, as text before "since"."""

    NOTHING = "nothing"
    WANTS_CORES = "waits for cores"
    HAS_CORES = "uses cores"
    WANTS_TURN = "waits for its turn to measure"
    PREPARES = "has been preparing a measurement"
    COMPILES = "has been compiling"
    JUDGES = "has been judging what it timed"
    TIMES = "has been timing"


HINTS = {
    Doing.WANTS_CORES: "runs on the same cores take turns; to use other cores: -s target.cores=[...]",
    Doing.WANTS_TURN: "runs on one machine measure in turns",
}
"""What a run that waits can do, or why it waits."""


@dataclass(frozen=True)
class Note:
    """The run that a process works for, its activity, its cores or those it waits for, its start (seconds since
    1970), and its process id."""

    run: str
    doing: Doing
    cores: tuple[int, ...]
    since: float
    process: int = 0


class Presence:
    """This process's own note below ``directory``, until it is closed or the process ends."""

    def __init__(self, directory: Path, run: str) -> None:
        folder = _folder(directory)
        folder.mkdir(mode=0o700, exist_ok=True)
        self._run = run or f"process {os.getpid()} ({' '.join(sys.argv)})"
        self._noted: tuple[Doing, Sequence[int]] | None = None
        name = f"{os.getpid()}-{next(_numbers)}"
        self._path, hidden = folder / name, folder / f".{name}"
        self._file = open_private(hidden, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.note(Doing.NOTHING)
        os.rename(hidden, self._path)  # hidden until it is locked: readers would take it for a dead process's

    def note(self, doing: Doing, cores: Sequence[int] = ()) -> None:
        """Write this process's activity from now on."""
        if self._noted == (doing, cores):
            return
        self._noted = (doing, cores)
        text = to_json(Note(self._run, doing, tuple(cores), time.time(), os.getpid()))
        os.pwrite(self._file, f"{text}\n".encode(), 0)  # readers ignore what follows the line

    def close(self) -> None:
        """Remove the note: this process has no activity any more."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def present(directory: Path) -> list[Note]:
    """The notes of all live processes; removes those of processes that ended."""
    notes = []
    for path in sorted(_folder(directory).glob("[!.]*")):
        wrong = (FileNotFoundError, InputError, ValueError)  # invalid notes are ignored
        with contextlib.suppress(*wrong), os.fdopen(open_private(path, os.O_RDONLY)) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                notes.append(from_json(file.readline(), Note))
            else:
                path.unlink(missing_ok=True)
    return notes


def interruptible(directory: Path) -> tuple[int, ...]:
    """Process ids of measuring processes that compile or judge, each the leader of its own process group."""
    noted = (note for note in present(directory) if note.doing in (Doing.COMPILES, Doing.JUDGES))
    return tuple(note.process for note in noted if _leads(note.process))


def _leads(process: int) -> bool:
    """Whether it is a measuring process here: the id in a note from another container may be invalid here."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        return MEASURING in command.split(b"\0") and os.getpgid(process) == process
    except OSError:
        return False


def waits(notes: Sequence[Note], run: str, now: float) -> dict[str, str]:
    """Runs for which ``run`` has waited longer than :data:`SOON_S`, empty for an unknown one, each with a message."""
    messages = {}
    for mine in notes:
        waited = now - mine.since
        if mine.run != run or waited < SOON_S or mine.doing not in (Doing.WANTS_CORES, Doing.WANTS_TURN):
            continue
        before = [note for note in notes if _keeps_waiting(note, mine)]
        others = [note for note in before if note.run != run]
        for note in others:
            line = f"waiting ({waited:.0f} s so far) for another run on this machine: {_sentence(note)}"
            messages[note.run] = f"{line}; {HINTS[mine.doing]}"
        if mine.doing is Doing.WANTS_CORES and not before:
            cores = _listed(mine.cores)
            messages[""] = f"waiting ({waited:.0f} s so far) for cores {cores}, which somebody else holds"
    return messages


def _keeps_waiting(note: Note, mine: Note) -> bool:
    if mine.doing is Doing.WANTS_CORES:
        return note.doing is Doing.HAS_CORES and not set(note.cores).isdisjoint(mine.cores)
    return note.doing in (Doing.PREPARES, Doing.TIMES)


def _sentence(note: Note) -> str:
    since = time.strftime("%H:%M:%S", time.localtime(note.since))
    cores = f" {_listed(note.cores)}" if note.cores else ""
    return f"{note.run} {note.doing}{cores} since {since}"


def _listed(cores: Sequence[int]) -> str:
    return ", ".join(map(str, cores))


class Lookout:
    """Reports, within the context, the runs that a run waits for: soon after a wait begins, and at intervals.

    Args:
        directory: the machine's.
        run: as in the notes of the run's own processes.
        report: receives each line, in the lookout's own thread.
        on_waited: receives the seconds of a wait, as they pass.
        look_s: seconds from one look to the next.
        clock: seconds.
        now: seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        report: Callable[[str], None],
        on_waited: Callable[[float], None] = lambda seconds: None,
        look_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._run, self._report, self._on_waited = directory, run, report, on_waited
        self._look_s, self._clock, self._now = look_s, clock, now
        self._reported: dict[str, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Lookout:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        looked, waited = self._clock(), False
        while not self._end.wait(self._look_s):
            waiting, now = waits(present(self._directory), self._run, self._now()), self._clock()
            if waiting:  # its beginning was too short to be seen
                self._on_waited(now - looked + (0.0 if waited else SOON_S))
            looked, waited = now, bool(waiting)
            for who, line in waiting.items():
                if now - self._reported.get(who, -AGAIN_S) >= AGAIN_S:
                    self._reported[who] = now
                    self._report(line)


def _folder(directory: Path) -> Path:
    return directory / "present"
