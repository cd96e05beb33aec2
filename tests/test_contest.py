"""Races of ``benchmarks/precision.py``: kept in files, and means over those who keep a budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage_evo.report.result import Operator
from tests.support.models import tiny_convnet
from tests.support.results import result

OURS = "ours"


def _ours(script: Any, folder: Path, wall_s: float) -> Any:
    """This project as the only contestant, with at most ``wall_s``; answers lie in ``folder``."""
    finders, entrants = script("contest.finders"), script("contest.entrants")
    others = sorted({*finders.PLAIN, *finders.FOR_A_BUDGET} - {OURS})
    task, asking = script("contest.task").Task("lines", folder, "top1"), entrants.Asking(1, (), wall_s, others)
    return entrants.entrants(task, folder, asking, print)


def _race(script: Any, folder: Path, name: str = "lines", ours_right: float = 1.0) -> Any:
    """Of five contestants on two samples: ours takes 1 ms, the tool that keeps a drop of 0.01 takes 2 ms."""
    candidates, race = script("contest.entrants"), script("contest.race")
    result, served = script("contest.question").Result, script("contest.engines").Served("onnxruntime", "model.onnx")
    turn = script("turns").Turn

    def entrant(name: str, right: float | None, budget: float | None = None, reason: str = "") -> Any:
        scores = None if right is None else np.array([1.0, right])
        return candidates.Entrant(name, budget, folder, result(3.0, served, reason), scores)

    entrants = [
        entrant("onnxruntime f32", 1.0),
        entrant("openvino as it comes", 1.0),
        entrant("nncf", 0.0),
        entrant("nncf heavy", 1.0),
        entrant("quantize_static, openvino", None, reason="RuntimeError: cannot"),
        entrant("ours", ours_right, 0.01),
    ]
    ms = {"onnxruntime f32": 8.0, "openvino as it comes": 4.0, "nncf": 0.5, "nncf heavy": 2.0, "ours, 0.01": 1.0}
    rounds = {title: [turn((time, time), 0), turn((time,), 0)] for title, time in ms.items()}
    task = script("contest.task").Task(name, folder / "task", "top1", only=(0.01,))
    return race.Race(task, entrants, rounds)


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
    text = "\n".join(module.summary(standings))
    assert "2.000 times as fast as the best other that keeps it, least 2.000 (lines), 1 of 2 tasks" in text
    assert "| digits |" in text
    assert "breaks it" in text


def test_who_has_no_answer_is_a_row_with_the_reason(script: Any, tmp_path: Path) -> None:
    lines = list(script("contest.table").Table(_race(script, tmp_path)).lines())
    assert any("quantize_static, openvino" in line and "RuntimeError: cannot" in line for line in lines)


def test_who_died_in_a_turn_is_a_row_too(script: Any, tmp_path: Path) -> None:
    race = _race(script, tmp_path)
    race.rounds.pop("nncf heavy")
    table = script("contest.table").Table(race)
    assert any("nncf heavy" in line and "died in its turn" in line for line in table.lines())
    assert table.best(0.01) == "openvino as it comes"


def test_a_task_is_also_judged_without_its_metric_and_labels(script: Any, tmp_path: Path) -> None:
    module = script("contest.task")
    task = module.Task("lines", tmp_path / "lines" / "task", "top1")
    arrays = {"x": np.ones((2, 1, 3, 16, 16), np.float32), "codes": np.zeros(2, np.int64)}
    module.write_task(task, tiny_convnet(), arrays, arrays)
    other = module.without_metric(task)
    assert (other.name, other.metric, other.budgets) == ("lines_error", "", module.ERRORS)
    assert {name for sample in module.read_samples(other.samples) for name in sample} == {"x"}
    assert module.read_task(other.folder) == other


def test_where_no_sample_is_judged_otherwise_few_do_not_tell(script: Any) -> None:
    judge, table = script("contest.judge"), script("contest.table")
    right = np.array([1.0, 0.0] * 50)
    same = judge.judged(right.copy(), right)
    assert same.value == 0.0
    assert 0.02 < same.high < 0.06
    assert (table._mark(same, 0.01), table._mark(same, 0.1)) == ("?", "")
    worse = judge.judged(np.where(np.arange(100) < 20, 0.0, right), right)
    assert worse.value == pytest.approx(0.1)
    assert worse.low < 0.1 < worse.high
    overlap = judge.judged(np.array([0.5, 0.75, 0.25]), np.array([0.5, 1.0, 0.5]))
    assert overlap.low <= overlap.value <= overlap.high


def test_who_was_too_late_is_not_asked_for_a_smaller_budget(script: Any, tmp_path: Path) -> None:
    result = script("contest.question")
    late = result.Result(60.2, reason="no answer within 60 s")
    result.write_result(result.answer_folder(tmp_path, OURS, 0.01), late)
    entrants = list(_ours(script, tmp_path, 60.0))
    assert [(one.budget, one.result.reason) for one in entrants] == [
        (0.01, "no answer within 60 s"),
        (0.005, "not asked, no answer within 60 s at 0.01"),
        (0.001, "not asked, no answer within 60 s at 0.01"),
    ]
    assert not result.answer_folder(tmp_path, OURS, 0.005).exists(), "a run with more time asks"


def test_an_answer_that_took_longer_than_is_allowed_now_is_late(script: Any, tmp_path: Path) -> None:
    result = script("contest.question")
    folder = result.answer_folder(tmp_path, OURS, 0.01)
    result.write_result(folder, result.Result(100.0, script("contest.engines").Served("openvino", "model.xml")))
    np.save(folder / "scores.npy", np.ones(2))
    late, in_time = (next(_ours(script, tmp_path, wall_s)) for wall_s in (60.0, 900.0))
    assert (late.result.reason, late.scores) == ("no answer within 60 s", None)
    assert in_time.result.answer is not None
    assert in_time.scores is not None


def test_a_tool_that_is_not_installed_says_so_in_one_line(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("contest.elsewhere")
    question = script("contest.question").Question(None, 0.01, tmp_path, 1)
    monkeypatch.setattr(module, "_request", lambda *_: tmp_path)
    monkeypatch.setattr(module, "_run_tool", lambda *_: module.NOT_INSTALLED)
    with pytest.raises(RuntimeError, match=r"^not installed: amd-quark=="):
        module.elsewhere("quark")(question)


def test_only_a_missing_tool_counts_as_not_installed(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "contest_tools"))
    request = script("request")
    with pytest.raises(SystemExit) as ended:
        request.package("no_such_tool.of_this_name")
    assert ended.value.code == request.NOT_INSTALLED == script("contest.elsewhere").NOT_INSTALLED
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        request.package("json.no_such_part")


def test_each_tool_has_a_script(script: Any) -> None:
    module = script("contest.elsewhere")
    assert {path.stem for path in module.SCRIPTS.glob("ask_*.py")} == {f"ask_{tool}" for tool in module.PACKAGES}


def test_a_run_of_ours_says_what_it_lost_and_took(script: Any, tmp_path: Path) -> None:
    module = script("precision_runs")
    run = tmp_path / "lines" / "threads_1" / "ours_0.01" / "run"
    (run / "work").mkdir(parents=True)
    (run / "work" / "shares.json").write_text('{"int8": [9e-4, 7e-4], "bfloat16": [1.0, 1.0]}')
    made = result()
    kinds = (("Conv", "int8"), ("Conv", "bfloat16"), ("Relu", "float32"))
    placement = [replace(made.placement[0], operators=tuple(Operator(*kind) for kind in kinds))]
    seconds = {"first answer at": 5.0, "calibrating": 2.0, "search": 60.0}
    row = module.row(run, replace(made, placement=placement, wall_seconds=seconds))
    cells = dict(zip(module.HEADS, row, strict=True))
    assert cells["task"] == "lines"
    assert cells["error, all in int8: expected"] == "4.00%"
    assert (cells["heavy operators in int8"], cells["all in bfloat16"]) == ("1 of 2", "1 of 3")
    assert (cells["s: calibrating"], cells["what operators lose"], cells["whole run"]) == ("2.0", "", "62")
