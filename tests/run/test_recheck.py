"""What measuring a front again tells of its points."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.limits import Limits
from collage_evo.answer.race import Race
from collage_evo.commands.recheck import _again, _take, write_rechecked
from collage_evo.graph.ir import weights
from collage_evo.graph.load.files import read_model, save_linked
from collage_evo.report.comparison import Rechecked
from collage_evo.report.result import FrontPoint
from tests.support.models import tiny_transformer

LOGS = (0.0, 0.02) * 5
"""Of how many times as fast as the answer the first other point was in each round: 95 % say that it is faster."""


@pytest.mark.parametrize(("others", "faster"), [(1, True), (7, False)])
def test_one_of_many_is_said_to_be_faster_only_where_that_many_do_not_seem_so_by_chance(
    others: int, faster: bool
) -> None:
    answer = FrontPoint(10.0, 1e-3, "answer", "found", ("float32", "int8"), answer=True)
    points = {"answer": answer}
    for k in range(1, others + 1):
        points[f"point-{k}"] = replace(answer, key=str(k), how=f"found {k}", answer=False)
    rounds = {name: tuple(((10.0,),) for _ in LOGS) for name in points}
    rounds["point-1"] = tuple(((10.0 * math.exp(-log),),) for log in LOGS)
    errors = dict.fromkeys(points, Judgement(1e-3, 8))
    found = _again(points, Race(rounds, {}), errors, {}, Limits(1e-3, 0.02))
    told = Rechecked("a.collage", "here", "here", "", 8, "of d.npz", 0.02, len(LOGS), found)
    assert (told.faster is not None) is faster


def test_what_was_measured_again_is_kept_whatever_lies_there(tmp_path: Path) -> None:
    (tmp_path / "rechecked").mkdir()
    (tmp_path / "rechecked" / "001.json").write_text("kept")
    compared: Any = SimpleNamespace(artifact=tmp_path / "best.collage")
    written = [write_rechecked(compared, [], tmp_path).name for _ in range(2)]
    assert written == ["000.json", "002.json"]
    assert (tmp_path / "rechecked" / "001.json").read_text() == "kept"


def test_the_model_of_a_run_comes_with_its_weights_as_links_and_its_records_as_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "HEAVY_BYTES", 0)
    monkeypatch.setattr(weights, "LARGE_BYTES", 64)
    (tmp_path / "run" / "work" / "records").mkdir(parents=True)
    (tmp_path / "run" / "work" / "records" / "kernels").write_text("tuned")
    save_linked(tiny_transformer(), tmp_path / "run" / "work" / "normalised.onnx")
    (tmp_path / "work").mkdir()
    run: Any = SimpleNamespace(directory=tmp_path / "run")
    _take(run, tmp_path / "work")
    assert weights.inlined(read_model(tmp_path / "work" / "normalised.onnx")) == tiny_transformer()
    there = {path.name: path for path in (tmp_path / "run").rglob("*") if path.is_file()}
    for path in (path for path in (tmp_path / "work").rglob("*") if path.is_file()):
        assert path.samefile(there[path.name]) == path.name.startswith("collage_evo-weights")
