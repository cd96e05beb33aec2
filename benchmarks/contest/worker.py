"""The process of a contestant: it finds a model, or scores it on held-out data.

    python -m contest.worker find TASK FOLDER CONTESTANT BUDGET THREADS PYTHONS [SETTING ...]
    python -m contest.worker score TASK FOLDER THREADS

``FOLDER`` gets ``found.json``, with what was found or why nothing was, and ``scores.npy``.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import numpy as np

from contest.engines import Run, open_served
from contest.finders import FOR_A_BUDGET, PLAIN
from contest.judge import Judge
from contest.question import Question, Result, read_result, write_result
from contest.task import feeds_of, read_samples, read_task


def find(task: Path, folder: Path, contestant: str, budget: str, threads: str, pythons: str, *settings: str) -> None:
    """Ask a contestant."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    question = Question(read_task(task), float(budget), folder, int(threads), Path(pythons), settings)
    begin = time.monotonic()
    try:
        answer = {**PLAIN, **FOR_A_BUDGET}[contestant](question)
        result = answer if isinstance(answer, Result) else Result(time.monotonic() - begin, answer)
    except Exception as error:  # whatever it is, it is this contestant's row
        result = Result(time.monotonic() - begin, reason=_line(error))
    write_result(folder, result)


def score(task_folder: Path, folder: Path, threads: str) -> None:
    """Run what was found over the held-out samples."""
    task, result = read_task(task_folder), read_result(folder)
    assert result is not None
    assert result.served is not None
    try:
        scores = Judge(task, task.held_out).scores(open_served(result.served, int(threads), task.outputs()))
        np.save(folder / "scores.npy", scores)
    except Exception as error:  # a file that its engine does not run is no answer
        write_result(folder, Result(result.seconds, result.served, f"does not run: {_line(error)}"))


def opened(task_folder: Path, folder: Path, threads: int) -> tuple[Run, dict[str, np.ndarray]]:
    """What was found, and inputs to time it on."""
    task, result = read_task(task_folder), read_result(folder)
    assert result is not None
    assert result.served is not None
    sample = read_samples(task.held_out)[0]
    return open_served(result.served, threads, task.outputs()), feeds_of(sample, task.inputs())


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


if __name__ == "__main__":
    what, task_at, folder_at, *rest = sys.argv[1:]
    if what == "find":
        find(Path(task_at), Path(folder_at), *rest)
    else:
        score(Path(task_at), Path(folder_at), *rest)
