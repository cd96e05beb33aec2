"""What one task's contest came to, as a JSON file: takes entrants and their turns, gives them back from the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from turns import Rounds, Turn

from contest.engines import Served
from contest.entrants import Entrant
from contest.found import Found
from contest.task import Task


@dataclass(frozen=True)
class Race:
    """A task, everybody who was asked with answer and scores, and the turns of those who ran."""

    task: Task
    said: Sequence[Entrant]
    rounds: Rounds


def write_race(path: Path, race: Race, about: Mapping[str, Any]) -> None:
    """Keep all of it, raw times in ms too, beside what there is to say ``about`` the machine."""
    task = race.task
    told = {"task": task.name, "metric": task.metric, "budgets": task.budgets}
    path.write_text(json.dumps({**told, **about, "rows": [_row(race, entrant) for entrant in race.said]}))


def read_race(path: Path) -> Race:
    """The race in a file of :func:`write_race`."""
    kept = json.loads(path.read_text())
    task = Task(kept["task"], path.parent / "task", kept["metric"], only=tuple(kept["budgets"]))
    said = [_entrant(path.parent, row) for row in kept["rows"]]
    turns = [[Turn(tuple(times), 0) for times in row["times_ms"]] for row in kept["rows"]]
    return Race(task, said, {entrant.told: own for entrant, own in zip(said, turns, strict=True) if own})


def _row(race: Race, entrant: Entrant) -> Mapping[str, Any]:
    found, scores = entrant.found, entrant.scores
    return {
        "contestant": entrant.name,
        "budget": entrant.budget,
        "seconds": found.seconds,
        "reason": found.reason,
        "served": asdict(found.served) if found.served else None,
        "scores": scores.tolist() if scores is not None else None,
        "times_ms": [turn.times_ms for turn in race.rounds.get(entrant.told, ())],
    }


def _entrant(folder: Path, row: Mapping[str, Any]) -> Entrant:
    served = Served(**row["served"]) if row["served"] else None
    found = Found(row["seconds"], served, row["reason"])
    scores = np.array(row["scores"]) if row["scores"] is not None else None
    return Entrant(row["contestant"], row["budget"], folder, found, scores)
