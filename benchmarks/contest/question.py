"""The question to a contestant, and its result as a file in a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contest.engines import Served
from contest.task import Task


@dataclass(frozen=True)
class Result:
    """A contestant's answer, and seconds until it was there; with the ``reason`` if there is none that runs."""

    seconds: float
    served: Served | None = None
    reason: str = ""

    @property
    def answer(self) -> Served | None:
        """What is served, if it runs."""
        return None if self.reason else self.served


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


def answer_folder(answers: Path, name: str, budget: float | None) -> Path:
    """Where a contestant's answer lies among all ``answers`` to a task."""
    title = name if budget is None else f"{name} {budget:g}"
    return answers / title.replace(", ", "_").replace(" ", "_")


def read_result(folder: Path) -> Result | None:
    """The result in a contestant's folder, if there is one."""
    path = folder / "found.json"
    if not path.exists():
        return None
    fields = json.loads(path.read_text())
    served = fields.pop("served")
    return Result(**fields, served=Served(**served) if served else None)


def write_result(folder: Path, result: Result) -> None:
    """Write ``result`` into a contestant's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "found.json").write_text(json.dumps(asdict(result), indent=1))
