"""The question to a contestant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from contest.engines import Served
from contest.result import Result
from contest.task import Task


@dataclass(frozen=True)
class Question:
    """Largest drop or error, a folder for its files, Pythons of other tools, more settings of our own tool."""

    task: Task
    budget: float
    folder: Path
    threads: int
    pythons: Path = Path()
    """A folder that has a virtual environment for each of ``elsewhere.PACKAGES``, by its name."""
    settings: Sequence[str] = ()


Finder = Callable[[Question], Served | Result]
"""A contestant: returns its own model, or the result of another one for another engine."""
