"""What single libraries take for the normalised model, where the file's own times say little of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collage_evo.answer.baselines import Baseline
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Placement
from collage_evo.placement.failure import Failure, Fault
from collage_evo.placement.outcome import Outcome
from collage_evo.run.stages import baselines as stage
from collage_evo.run.store import Store


def signal(height: int, width: int) -> Graph:
    b = Builder("signal")
    kernel = np.ones((2, 2, 3, 1) if width == 1 else (2, 2, 1, 3), np.float32)
    return build_graph(normalise(b.model(b.op("Conv", b.input("x", (1, 2, height, width)), b.const(kernel)))))


COLUMN, ROW = signal(64, 1), signal(1, 64)
FAR = Failure(Fault.FAR_BEHIND, "given up after 1 run")
ALONE = (
    Baseline("openvino", "openvino", "default", Path("a"), Outcome(8.0, error=0.0)),
    Baseline("openvino/bf16", "openvino", "bf16", Path("b"), Outcome(90.0, error=0.01, failure=FAR), exact=False),
    Baseline("tvm", "tvm", "default", Path("c"), Outcome(70.0, error=0.0)),
)


class Evaluator:
    """Takes a tenth of what the file takes; ``default`` does not run the graph whole."""

    asked: list[tuple[str, str]]

    def __init__(self, *_: Any) -> None:
        pass

    def evaluate(self, placements: Any) -> list[Outcome | None]:
        wholes: list[Placement] = list(placements)
        Evaluator.asked = [placement.regions[0].engine for placement in wholes]
        assert all(placement.regions[0].nodes == COLUMN.all_nodes for placement in wholes)
        return [None if engine[1] == "default" else Outcome(9.0, error=0.01) for engine in Evaluator.asked]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    class Nothing:
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> Nothing:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(stage, "Builders", Nothing)
    monkeypatch.setattr(stage, "MeasuredEvaluator", Evaluator)
    return SimpleNamespace(store=Store(tmp_path), stage=Nothing, pool=None, whole=None)


def test_columns_that_became_rows_are_timed_again_and_the_times_are_kept(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stage.on_normalised(run, COLUMN, ALONE)
    assert Evaluator.asked == [("openvino", "default"), ("openvino", "bf16")], "TVM would compile for long"
    assert [one.outcome.latency_ms for one in found] == [8.0, 9.0, 70.0]
    assert [one.outcome.failure for one in found] == [None] * 3
    monkeypatch.setattr(stage, "MeasuredEvaluator", None)
    assert stage.on_normalised(run, COLUMN, ALONE) == found


def test_the_file_tells_where_its_signals_lie_as_in_the_normalised_model(run: Any) -> None:
    Evaluator.asked = []
    assert stage.on_normalised(run, ROW, ALONE) == ALONE
    assert Evaluator.asked == []
