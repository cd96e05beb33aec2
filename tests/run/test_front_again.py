"""A run's front that is compiled and measured again: what it needs, and what is said of its points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collage_evo.accuracy.judge import Judgement
from collage_evo.answer.race import Race, Serving
from collage_evo.commands.compare import _comparison
from collage_evo.commands.compared import ComparedArtifact
from collage_evo.commands.front_again import _take
from collage_evo.config import parse_config
from collage_evo.graph.ir import weights
from collage_evo.graph.load.files import read_model, save_linked
from collage_evo.hardware.processor import this_machine
from collage_evo.report.comparison import ARTIFACT, Comparison, Side, verdict
from collage_evo.report.result import FrontPoint
from tests.support.models import tiny_transformer

LOGS = (0.003, 0.021) * 5
"""By how much the first other point was faster than the answer in each round, as logarithms: enough for one
point, not for seven."""
ANSWER = FrontPoint(10.0, 1e-3, "answer", "found", ("float32", "int8"), answer=True)


def measured(monkeypatch: pytest.MonkeyPatch, turns: Race, *sides: Side, asked: float | str = 0.02) -> Comparison:
    """The comparison after a race, with an error of 0.001 for each side that ran."""
    target = SimpleNamespace(threads=1, machine=this_machine())
    monkeypatch.setattr("collage_evo.commands.compare.read_artifact", lambda _: SimpleNamespace(target=target))
    config = parse_config({"model": {"source": "a.onnx"}}, (), "test")
    shapes: Any = {"x": [1]}
    compared = ComparedArtifact(Path("a.collage"), shapes, config, "a.onnx", (), "of d.npz")
    model: Any = SimpleNamespace(excused={}, digest="")
    errors = dict.fromkeys(turns.rounds, Judgement(1e-3, 8))
    return _comparison(compared, model, turns, sides, errors, asked)


def race_of(**logs: Sequence[float]) -> Race:
    """A race of the artifact and others that were so much faster in each round."""
    batches = {name.replace("_", "-"): tuple(((10.0 * math.exp(-log),),) for log in of) for name, of in logs.items()}
    rounds = {ARTIFACT: tuple(((10.0,),) for _ in LOGS), **batches}
    return Race(rounds, {}, dict.fromkeys(rounds, Serving(1.0, 1)))


@pytest.mark.parametrize(("others", "faster"), [(1, True), (7, False)])
def test_one_of_many_is_said_to_be_faster_only_where_that_many_do_not_seem_so_by_chance(
    others: int, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"point-{k}" for k in range(1, others + 1)]
    points = [Side(name, before=replace(ANSWER, key=name, how=name, answer=False)) for name in names]
    turns = race_of(**{name.replace("-", "_"): LOGS if name == "point-1" else [0.0] * len(LOGS) for name in names})
    found = measured(monkeypatch, turns, Side(ARTIFACT, before=ANSWER), *points)
    assert ("point-1 is faster here" in verdict(found)) is faster
    assert [side.name for side in found.front] == names


def test_a_point_fits_by_its_error_or_where_only_float32_may_answer_by_its_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixed = Side("point-1", before=replace(ANSWER, answer=False))
    plain = Side("point-2", before=replace(ANSWER, arithmetics=("float32",), answer=False))
    turns = race_of(point_1=[0.0], point_2=[0.0])
    for asked, fit in ((0.02, [True, True]), (1e-4, [False, False]), ("exact", [False, True])):
        found = measured(monkeypatch, turns, Side(ARTIFACT, before=ANSWER), mixed, plain, asked=asked)
        assert [side.feasible for side in found.front] == fit
        assert found.ours.feasible == fit[0]
    lost = measured(monkeypatch, race_of(), Side(ARTIFACT, before=ANSWER), mixed)
    assert [(side.latency_ms, side.feasible) for side in lost.front] == [(None, False)]


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
