"""What single libraries take for the normalised model, where the file's own times say little of it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collage_evo.answer.baselines import Baseline
from collage_evo.fitness.jobs import Measured, PlacementJob
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.models.builder import Builder
from collage_evo.run.stages import baselines as stage
from collage_evo.run.store import Store
from tests.support.machine import FakeMachine


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


def answer(job: PlacementJob) -> Measured | Failure:
    """A tenth of what the file takes; the default does not run the graph whole."""
    (region,) = job.regions
    assert region.nodes == COLUMN.all_nodes
    return FAR if region.variant == "default" else Measured((9.0,) * 3, 0.01, 0.01)


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine(answer)


@pytest.fixture
def run(machine: FakeMachine, tmp_path: Path) -> Any:
    return SimpleNamespace(store=Store(tmp_path), stage=lambda *_: nullcontext(), machine=machine)


def test_columns_that_became_rows_are_timed_again_and_the_times_are_kept(
    run: Any, machine: FakeMachine
) -> None:
    found = stage.on_normalised(run, COLUMN, ALONE)
    asked = [job.regions[0].engine for job in machine.jobs]
    assert asked == [("openvino", "default"), ("openvino", "bf16")], "TVM would compile for long"
    assert [one.outcome.latency_ms for one in found] == [8.0, 9.0, 70.0]
    assert [one.outcome.failure for one in found] == [None] * 3
    assert stage.on_normalised(run, COLUMN, ALONE) == found
    assert len(machine.jobs) == 2, "the times are kept"


def test_the_file_tells_where_its_signals_lie_as_in_the_normalised_model(run: Any, machine: FakeMachine) -> None:
    assert stage.on_normalised(run, ROW, ALONE) == ALONE
    assert not machine.jobs
