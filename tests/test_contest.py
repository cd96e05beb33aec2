"""Races of ``benchmarks/precision.py``: kept in files, and means over those who keep a budget."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one of the benchmarks' modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def _race(script: Any, folder: Path, name: str = "lines", ours_right: float = 1.0) -> Any:
    """Of five contestants on two samples: ours takes 1 ms, the tool that keeps a drop of 0.01 takes 2 ms."""
    entrants, race = script("contest.entrants"), script("contest.race")
    found, served = script("contest.found").Found, script("contest.engines").Served("onnxruntime", "model.onnx")
    turn = script("turns").Turn

    def entrant(told: str, right: float | None, budget: float | None = None, reason: str = "") -> Any:
        scores = None if right is None else np.array([1.0, right])
        return entrants.Entrant(told, budget, folder, found(3.0, served, reason), scores)

    said = [
        entrant("onnxruntime f32", 1.0),
        entrant("openvino as it comes", 1.0),
        entrant("nncf", 0.0),
        entrant("nncf heavy", 1.0),
        entrant("quantize_static, openvino", None, reason="RuntimeError: cannot"),
        entrant("ours", ours_right, 0.01),
    ]
    ms = {"onnxruntime f32": 8.0, "openvino as it comes": 4.0, "nncf": 0.5, "nncf heavy": 2.0, "ours, 0.01": 1.0}
    rounds = {told: [turn((time, time), 0), turn((time,), 0)] for told, time in ms.items()}
    task = script("contest.task").Task(name, folder / "task", "top1", only=(0.01,))
    return race.Race(task, said, rounds)


def test_a_race_comes_back_from_its_file(script: Any, tmp_path: Path) -> None:
    race = _race(script, tmp_path)
    path = tmp_path / "1.json"
    script("contest.race").write_race(path, race, {"threads": 1})
    again = script("contest.race").read_race(path)
    table = script("contest.table").Table
    assert list(table(again).lines()) == list(table(race).lines())
    assert again.task.budgets == (0.01,)


def test_ours_stands_beside_the_fastest_that_keeps_the_budget(script: Any, tmp_path: Path) -> None:
    module = script("contest.table")
    (standing,) = module.Table(_race(script, tmp_path)).standings(0.01)
    assert standing.best == "nncf heavy"
    assert {rival: ratio.estimate for rival, ratio in standing.gains.items()} == pytest.approx(
        {"ONNX Runtime": 8.0, "OpenVINO": 4.0, module.BEST: 2.0}
    )


def test_who_breaks_the_budget_has_no_part_in_the_means(script: Any, tmp_path: Path) -> None:
    module = script("contest.table")
    races = [_race(script, tmp_path), _race(script, tmp_path, "digits", ours_right=0.5)]
    standings = [one for race in races for one in module.Table(race).standings(0.01)]
    told = "\n".join(module.summary(standings))
    assert "2.000 times as fast as the best other that keeps it, least 2.000 (lines), 1 of 2 tasks" in told
    assert "| digits |" in told
    assert "breaks it" in told


def test_who_has_no_answer_is_a_row_with_the_reason(script: Any, tmp_path: Path) -> None:
    lines = list(script("contest.table").Table(_race(script, tmp_path)).lines())
    assert any("quantize_static, openvino" in line and "RuntimeError: cannot" in line for line in lines)


def test_who_died_in_a_turn_is_a_row_too(script: Any, tmp_path: Path) -> None:
    race = _race(script, tmp_path)
    race.rounds.pop("nncf heavy")
    table = script("contest.table").Table(race)
    assert any("nncf heavy" in line and "died in its turn" in line for line in table.lines())
    assert table.best(0.01) == "openvino as it comes"


def test_a_task_is_also_judged_without_its_metric(script: Any, tmp_path: Path) -> None:
    module = script("contest.task")
    folder = tmp_path / "lines" / "task"
    folder.mkdir(parents=True)
    for name in ("model.onnx", "given.npz", "held_out.npz"):
        (folder / name).write_bytes(name.encode())
    other = module.without_metric(module.Task("lines", folder, "top1"))
    assert (other.name, other.metric, other.budgets) == ("lines_error", "", module.ERRORS)
    assert other.given.read_bytes() == b"given.npz"
    assert module.read_task(other.folder) == other
