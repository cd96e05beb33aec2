"""A contestant's answer as a file in a folder of its own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from contest.engines import Served


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
