"""Single backends: the lines of a run about them, and their times on the normalised model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.answer.baselines import Baseline, read_baselines, write_baselines
from collage_evo.backends.base import UNCHECKED
from collage_evo.backends.registry import get_backend
from collage_evo.errors import UnavailableError
from collage_evo.fitness.jobs import Measured, PlacementJob
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.convert.origin import Origin
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.prepare import SearchableModel
from collage_evo.models.builder import Builder
from collage_evo.run.context import RunContext
from collage_evo.run.machine import Backends
from collage_evo.run.plan import PLAN
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Records, Seconds
from collage_evo.run.samples import SHAPES, model_file
from collage_evo.run.stages import baselines as stage
from collage_evo.run.stages.baselines import Baselines, NormalisedBaselines, fall_back
from collage_evo.run.stages.model import run_once
from collage_evo.run.warm_start import WarmStart
from tests.support.machine import FakeMachine
from tests.support.models import chain
from tests.support.runs import fake_run


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
def run(machine: FakeMachine, tmp_path: Path) -> RunContext:
    return fake_run(tmp_path, machine)


def on_normalised(run: RunContext, graph: Graph) -> NormalisedBaselines:
    model = SearchableModel(graph, 0.0, "all", {}, Origin((), ()))
    records = Records(PLAN, {RunContext: run, SearchableModel: model, Baselines: Baselines(ALONE)})
    return records[NormalisedBaselines]


def test_columns_that_became_rows_are_timed_again_and_the_times_are_kept(
    run: RunContext, machine: FakeMachine
) -> None:
    found = on_normalised(run, COLUMN)
    asked = [job.regions[0].engine for job in machine.jobs]
    assert asked == [("openvino", "default"), ("openvino", "bf16")], "TVM would compile for long"
    assert [one.outcome.latency_ms for one in found] == [8.0, 9.0, 70.0]
    assert [one.outcome.failure for one in found] == [None] * 3
    assert on_normalised(run, COLUMN) == found
    assert len(machine.jobs) == 2, "the times are kept"


def test_signals_in_rows_are_not_timed_again(run: RunContext, machine: FakeMachine) -> None:
    assert on_normalised(run, ROW) == ALONE
    assert not machine.jobs


@pytest.mark.parametrize(("fault", "printed"), [(Fault.NEEDLESS, False), (Fault.BUILD, True)])
def test_a_variant_that_is_no_other_than_the_default_has_no_line(fault: Fault, printed: bool, tmp_path: Path) -> None:
    onnx.save(chain(1), tmp_path / "m.onnx")
    lines, machine = list[str](), FakeMachine(lambda job: Failure(fault, "nchw is no other than default"))
    run = fake_run(tmp_path, machine, lines, **{"model.source": str(tmp_path / "m.onnx")})
    model = run_once(run.config, model_file(run.config), ())
    backends = Backends((get_backend("onnxruntime"),))
    best = Publisher(run, fall_back(run, model, backends))
    lines.clear()
    with pytest.raises(UnavailableError):
        stage.measure_baselines(run, model, backends, WarmStart(), best, Seconds(60.0))
    assert any("ONNX Runtime in float32" in line for line in lines) == printed


def test_who_cannot_be_checked_is_not_measured_and_no_other_run_decided_that(tmp_path: Path) -> None:
    onnx.save(chain(1), tmp_path / "m.onnx")
    run = fake_run(tmp_path, FakeMachine(lambda job: FAR), **{"model.source": str(tmp_path / "m.onnx")})
    model = replace(run_once(run.config, model_file(run.config), ()), unchecked=("If",))
    backends = Backends(map(get_backend, ("onnxruntime", "openvino")))
    best = Publisher(run, fall_back(run, model, backends))
    with pytest.raises(UnavailableError):
        stage.measure_baselines(run, model, backends, WarmStart(), best, Seconds(60.0))
    recorded = read_baselines(tmp_path / stage.RECORDED, tmp_path / stage.ARTIFACTS)
    failed = {one.outcome.failure for one in recorded if one.backend == "openvino"}
    assert failed == {Failure(Fault.KNOWN, UNCHECKED)}


def test_a_library_that_refuses_no_shapes_needs_one_that_does(tmp_path: Path) -> None:
    onnx.save(chain(1), tmp_path / "m.onnx")
    run = fake_run(tmp_path, FakeMachine(lambda job: FAR), **{"model.source": str(tmp_path / "m.onnx")})
    model = run_once(run.config, model_file(run.config), ())
    run.store.put(SHAPES, OpenShapes({"x": (Dimension(1, 8, "rows"),)}))
    with pytest.raises(UnavailableError, match=r"first request .*given up.* OpenVINO needs: run without it"):
        fall_back(run, model, Backends(map(get_backend, ("openvino", "tvm"))))
    assert fall_back(run, model, Backends((get_backend("onnxruntime"),))).fallback is None
    run = fake_run(tmp_path, FakeMachine(lambda job: Measured((1.0,), 0.0, 0.0)))
    shutil.rmtree(tmp_path / stage.FALLBACK_ARTIFACTS, ignore_errors=True)
    (tmp_path / stage.FALLBACKS).unlink()
    (name,), outputs = model.references[0]
    checked = [({name: np.zeros(shape, np.float32)}, outputs) for shape in ((2, 8), (6, 4))]
    model = replace(model, references=tuple(checked))
    assert fall_back(run, model, Backends(map(get_backend, ("openvino", "onnxruntime")))).least == {name: [2, 4]}


@pytest.mark.parametrize(
    ("recorded", "why", "again"),
    [("onnxruntime", FAR, False), ("openvino", FAR, True), ("onnxruntime", Failure(Fault.NO_TIME), True)],
)
def test_recorded_baselines_of_other_backends_or_without_an_answer_in_time_are_measured_again(
    recorded: str, why: Failure, again: bool, tmp_path: Path
) -> None:
    onnx.save(chain(1), tmp_path / "m.onnx")
    machine = FakeMachine(lambda job: FAR)
    run = fake_run(tmp_path, machine, **{"model.source": str(tmp_path / "m.onnx")})
    model, backends = run_once(run.config, model_file(run.config), ()), Backends((get_backend("onnxruntime"),))
    single = Baseline(recorded, recorded, "default", Path("a"), Outcome.unfit(why), run.setting.target.digest)
    write_baselines(tmp_path / stage.RECORDED, [single])
    best = Publisher(run, fall_back(run, model, backends))
    with pytest.raises(UnavailableError):
        stage.measure_baselines(run, model, backends, WarmStart(), best, Seconds(60.0))
    assert bool(machine.jobs) == again
