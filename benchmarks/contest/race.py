"""The contest of one task as a JSON file."""

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
from contest.question import Result
from contest.task import Task


@dataclass(frozen=True)
class Race:
    """A task, everybody who was asked with answer and scores, and the turns of those who ran."""

    task: Task
    entrants: Sequence[Entrant]
    rounds: Rounds


def write_race(path: Path, race: Race, about: Mapping[str, Any]) -> None:
    """Keep all of it, raw times in ms too, beside what there is to say ``about`` the machine."""
    task = race.task
    head = {"task": task.name, "metric": task.metric, "budgets": task.budgets}
    path.write_text(json.dumps({**head, **about, "rows": [_row(race, entrant) for entrant in race.entrants]}))


def read_race(path: Path) -> Race:
    """The race in a file of :func:`write_race`."""
    fields = json.loads(path.read_text())
    task = Task(fields["task"], path.parent / "task", fields["metric"], only=tuple(fields["budgets"]))
    entrants = [_entrant(path.parent, row) for row in fields["rows"]]
    turns = [[Turn(tuple(times), 0) for times in row["times_ms"]] for row in fields["rows"]]
    rounds = {entrant.title: each for entrant, each in zip(entrants, turns, strict=True) if each}
    return Race(task, entrants, rounds)


def _row(race: Race, entrant: Entrant) -> Mapping[str, Any]:
    result, scores = entrant.result, entrant.scores
    return {
        "contestant": entrant.name,
        "budget": entrant.budget,
        "seconds": result.seconds,
        "reason": result.reason,
        "served": asdict(result.served) if result.served else None,
        "scores": scores.tolist() if scores is not None else None,
        "times_ms": [turn.times_ms for turn in race.rounds.get(entrant.title, ())],
    }


def _entrant(folder: Path, row: Mapping[str, Any]) -> Entrant:
    served = Served(**row["served"]) if row["served"] else None
    result = Result(row["seconds"], served, row["reason"])
    scores = np.array(row["scores"]) if row["scores"] is not None else None
    return Entrant(row["contestant"], row["budget"], folder, result, scores)
