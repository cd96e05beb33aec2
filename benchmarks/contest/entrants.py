"""Answers of all contestants to a task, each from processes of its own that may fail or exceed a time limit.

Answers that are in the folder are not made again.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contest.engines import Served
from contest.finders import FOR_A_BUDGET, PLAIN
from contest.question import Result, answer_folder, read_result, write_result
from contest.task import Task

BENCHMARKS = Path(__file__).resolve().parents[1]
LATE = "no answer within"
"""How the reason begins of who was ended, or would have been."""


@dataclass(frozen=True)
class Entrant:
    """A contestant at one budget, or at all of them: its answer, and its scores on held-out samples."""

    name: str
    budget: float | None
    folder: Path
    result: Result
    scores: np.ndarray | None

    @property
    def title(self) -> str:
        return self.name if self.budget is None else f"{self.name}, {self.budget:g}"


@dataclass(frozen=True)
class Asking:
    """How contestants are asked: threads and cores of serving, bound on the seconds of an answer, who is left out."""

    threads: int
    cores: Sequence[int]
    wall_s: float
    without: Sequence[str] = ()
    settings: Sequence[str] = ()
    """More settings of our own tool."""
    again: bool = False
    """Whether who had no answer is asked once more."""
    pythons: Path = Path()
    """Where other tools have virtual environments of their own, by name."""


def entrants(task: Task, folder: Path, asking: Asking, log: Callable[[str], None]) -> Iterator[Entrant]:
    """Everybody who takes part. Who was too late at a budget is not asked for a smaller one, which takes no less."""
    wanted: list[tuple[str, float | None]] = [(name, None) for name in PLAIN]
    wanted += [(name, budget) for name in FOR_A_BUDGET for budget in sorted(task.budgets, reverse=True)]
    late: dict[str, str] = {}
    for name, budget in wanted:
        if any(name == left or name.startswith(f"{left},") for left in asking.without):
            continue
        at = answer_folder(folder, name, budget)
        if name in late and read_result(at) is None:
            entrant = Entrant(name, budget, at, Result(0.0, reason=late[name]), None)
        else:
            entrant = _entrant(task, name, budget, at, asking)
        if budget is not None and entrant.result.reason.startswith(LATE):
            late.setdefault(name, f"not asked, {entrant.result.reason} at {budget:g}")
        log(f"{task.name}: {entrant.title}: {entrant.result.reason or f'{entrant.result.seconds:.0f} s'}")
        yield entrant


def content(served: Served) -> str:
    """The same for two answers that are the same file on the same engine."""
    path = Path(served.path)
    parts = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path, path.with_suffix(".bin")]
    digest = hashlib.sha256(f"{served.engine} {served.hint}".encode())
    for part in parts:
        if part.exists():
            digest.update(part.read_bytes())
    return digest.hexdigest()


def _entrant(task: Task, name: str, budget: float | None, folder: Path, asking: Asking) -> Entrant:
    result = read_result(folder)
    # Who was late in a run with a smaller bound has more time in this one.
    more = result is not None and result.reason.startswith(LATE) and result.seconds < asking.wall_s
    if result is None or more or (result.reason and asking.again):
        arguments = [name, str(budget or 0.0), str(asking.threads), str(asking.pythons), *asking.settings]
        result = _in_time("find", task, folder, arguments, asking.wall_s, ())
    if result.answer and not (folder / "scores.npy").exists():
        result = _in_time("score", task, folder, [str(asking.threads)], asking.wall_s, asking.cores)
    if result.answer and result.seconds > asking.wall_s:  # kept from a run with a larger bound
        result = Result(result.seconds, reason=f"{LATE} {asking.wall_s:.0f} s")
    scores = np.load(folder / "scores.npy") if result.answer else None
    return Entrant(name, budget, folder, result, scores)


def _in_time(what: str, task: Task, folder: Path, args: Sequence[str], wall_s: float, cores: Sequence[int]) -> Result:
    """Run the worker; what it found, or that it died or took too long."""
    begin = time.monotonic()
    status = run_bounded(["-m", "contest.worker", what, str(task.folder), str(folder), *args], wall_s, cores)
    result = read_result(folder)
    done = (folder / "scores.npy").exists() if what == "score" else result is not None
    if result is None or not (done or result.reason):
        reason = f"{LATE} {wall_s:.0f} s" if status is None else f"the process died ({status})"
        result = Result(time.monotonic() - begin, result.served if result else None, reason)
        write_result(folder, result)
    return result


def run_bounded(arguments: Sequence[str], wall_s: float, cores: Sequence[int] = (), python: str = "") -> int | None:
    """Run Python on ``cores`` (none: all) and end it, with all that it started, after ``wall_s``: its exit status, or
    None where it was ended.
    """
    path = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [python or sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
    )
    try:
        return process.wait(wall_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
