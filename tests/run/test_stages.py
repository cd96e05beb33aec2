"""What a backend does to a run's own process: nothing, wherever it is asked to compile. How long a search takes."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest

from collage_evo.answer.baselines import Baseline
from collage_evo.backends.enumerate import Matches
from collage_evo.backends.registry import get_backend
from collage_evo.config import SearchConfig, changed, parse_config
from collage_evo.costs.kernel_tuning import Tuned
from collage_evo.costs.saved_costs import costs_key
from collage_evo.errors import InputError
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.settings import Budget
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.target import Target
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Placement, Region
from collage_evo.report.progress import LineReporter
from collage_evo.report.stage import Stage
from collage_evo.run.budget import (
    LEAST_S,
    USUAL_S,
    Pace,
    comparison_s,
    delivery_s,
    exceeds_planned_time,
    search_budget,
    seconds_each,
)
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import LEAD_S, deadline
from collage_evo.run.directory import start_run
from collage_evo.run.machine import Backends
from collage_evo.run.open import open_run
from collage_evo.run.plan import PLAN
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Records, Seconds
from collage_evo.run.stages import costs as stages_costs
from collage_evo.run.stages.baselines import Baselines, NormalisedBaselines, fall_back, measure_baselines
from collage_evo.run.stages.costs import tune_backends
from collage_evo.run.stages.model import NOTHING_FINITE, normalise
from collage_evo.run.stages.precision import Calibrated
from collage_evo.run.store import Store
from collage_evo.run.warm_start import WarmStart
from collage_evo.runtime.artifact import load_artifact, read_artifact
from collage_evo.runtime.signature import signature_of
from tests.support import misoptimised
from tests.support.faults import install_faulty
from tests.support.machine import FakeMachine
from tests.support.models import chain, tiny_convnet
from tests.support.quick import QUICK, nested
from tests.support.runs import fake_run, run_in
from tests.support.typed import not_none


def test_a_backend_that_crashes_in_the_final_compile_fails_its_placement_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in install_faulty(tmp_path / "plugin").items():
        monkeypatch.setenv(name, value)
    onnx.save(chain(1), tmp_path / "tiny.onnx")
    config = parse_config(
        {"model": {"source": str(tmp_path / "tiny.onnx")}, "cache": {"dir": str(tmp_path / "cache")}}, (), "test"
    )
    with open_run(config, tmp_path / "run", LineReporter()) as (run, model):
        graph = normalise(run, model).graph

        def placed(backend: str, variant: str) -> Placement:
            rest = graph.all_nodes & ~1
            regions = [Region(1, backend, variant), *([Region(rest, "onnxruntime", "default")] if rest else [])]
            return Placement(tuple(regions))

        named = {
            "crashing": placed("faulty", "crash-building"),
            "refused": placed("faulty", "unbuildable"),
            "good": placed("onnxruntime", "default"),
        }
        written = run.machine.write(named, run.work)
    assert written["crashing"] == Failure(Fault.CRASH, "killed by SIGSEGV")
    assert written["refused"] == Failure(Fault.BUILD, "faulty: cannot be built, on purpose")
    assert isinstance(written["good"], Path)
    found = read_artifact(written["good"])
    assert {piece.backend for piece in found.program.pieces} == {"onnxruntime"}
    assert (found.profiles[0].info["key"], found.target.digest) == (named["good"].key, run.target.digest)


@pytest.mark.parametrize(
    ("given", "spent_s", "seconds"),
    [
        (SearchConfig(), 0.0, USUAL_S),
        (SearchConfig(), Pace().searched_by_s - 30.0, 30.0),
        (SearchConfig(), 1e6, LEAST_S),
        (SearchConfig(seconds=90.0), 1e6, 90.0),
        (SearchConfig(evaluations=10), 1e6, USUAL_S),
        (SearchConfig(seconds=math.inf, evaluations=10), 1e6, None),
    ],
)
def test_a_search_that_begins_late_has_less_time_unless_it_is_given(
    tmp_path: Path, given: SearchConfig, spent_s: float, seconds: float | None
) -> None:
    assert search_budget(Store(tmp_path), given, spent_s, {}) == Budget(given.evaluations, seconds)


@pytest.mark.parametrize(("placement_s", "seconds"), [(1.0, LEAST_S), (20.0, 40.0), (60.0, USUAL_S)])
def test_a_search_that_begins_late_has_time_for_a_few_placements(
    tmp_path: Path, placement_s: float, seconds: float
) -> None:
    found = search_budget(Store(tmp_path), SearchConfig(), 1e6, {}, pace=Pace(0.0, placement_s))
    assert found == Budget(None, seconds)


@pytest.mark.parametrize(
    ("pace", "seconds"), [(Pace(0.2, 5.0), 40.0), (Pace(0.2, 8.0), 40.0), (Pace(0.2, 8.5), 42.0)]
)
def test_a_search_leaves_time_for_the_final_comparison_of_a_slow_model(
    tmp_path: Path, pace: Pace, seconds: float
) -> None:
    assert search_budget(Store(tmp_path), SearchConfig(), 20.0, {}, pace=pace) == Budget(None, seconds)


@pytest.mark.parametrize(
    ("spent_s", "placement_s", "given", "late"),
    [
        (30.0, 1.0, {}, False),
        (40.0, 1.0, {}, True),
        (140.0, 20.0, {}, False),
        (160.0, 20.0, {}, True),
        (1e6, 20.0, {"search.seconds": 60.0}, False),
        (1e6, 20.0, {"search.evaluations": 5}, False),
        (1e6, 20.0, {"time": 600.0}, False),
        (1e6, 20.0, {"backends.tvm.trials": 8}, False),
        (1e6, 20.0, {"search.tune": True}, False),
        (1e6, 20.0, {"sweep.space": {"search.ga.population": {"low": 8, "high": 40}}}, False),
    ],
)
def test_a_search_exceeds_the_planned_time_only_if_nobody_asked_for_it(
    spent_s: float, placement_s: float, given: Mapping[str, Any], late: bool
) -> None:
    config = parse_config(nested({"model.source": "builtin:squeezenet", **given}), (), "test")
    assert exceeds_planned_time(config, spent_s, Pace(0.0, placement_s)) == late
    assert exceeds_planned_time(config, spent_s, Pace(2.0, placement_s)) == (late or not given)


def test_the_time_of_a_final_comparison_follows_from_that_of_the_baselines_that_ran() -> None:
    ran = Baseline("a", "a", "default", Path("a"), Outcome(1.0, n=1))
    failed = replace(ran, outcome=Outcome.unfit(Failure(Fault.BUILD, "no such operator")))
    each = [seconds_each({Stage.BASELINES: took}, (ran, ran, failed)) for took in (4.0, 40.0)]
    short, long = map(comparison_s, each)
    assert (each, 8 * 18.0 > long - short > 18.0) == ([2.0, 20.0], True)
    assert delivery_s(each[1]) < long < comparison_s(each[1], is_open=True)
    assert comparison_s(0.5) - delivery_s(0.5) > 8.0, "rounds have a least length, however fast the model is"


@pytest.mark.parametrize(
    ("left_s", "placement_s", "late"),
    [(21.0, 0.0, False), (19.0, 0.0, True), (31.0, 10.0, False), (29.0, 10.0, True)],
)
def test_a_search_has_no_costs_where_a_deadline_leaves_it_less_time_than_they_take(
    left_s: float, placement_s: float, late: bool
) -> None:
    config = parse_config(nested({"model.source": "builtin:squeezenet", "costs.seconds": 10.0}), (), "test")
    with deadline(left_s + LEAD_S):
        assert exceeds_planned_time(config, 0.0, Pace(0.0, placement_s)) == late
        assert Pace(0.0, 5.0).most_s == pytest.approx(left_s - 5.0, abs=0.5)
    assert Pace(0.0, 5.0).most_s == math.inf


def test_tuning_of_kernels_takes_none_of_the_time_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cost_meter", "measure_costs"):
        monkeypatch.setattr(stages_costs, name, lambda *_: None)
    tuned = Tuned("tvm", "", 0, 0, 0.0, 0, {}, ())
    monkeypatch.setattr(stages_costs, "tune_kernels", lambda *_: tuned)
    run = fake_run(tmp_path, FakeMachine(lambda job: None), **{"backends.tvm.trials": 8})
    model: Any = SimpleNamespace(graph=None)
    tune_backends(run, model, Matches((), (), {}), Backends((cast(Any, SimpleNamespace(name="tvm")),)))
    assert len(run.seconds) == 2
    took = {**dict.fromkeys(run.seconds, 400.0), Stage.MODEL: 50.0}
    assert search_budget(Store(tmp_path / "other"), SearchConfig(), 820.0, took).seconds == USUAL_S


@pytest.mark.parametrize("given", [{}, {"search": {"seconds": 60}}, {"search": {"seconds": math.inf}}])
def test_a_configuration_that_is_passed_on_gives_no_more_than_it_was_given(given: dict[str, Any]) -> None:
    config = parse_config({"model": {"source": "builtin:squeezenet"}, **given}, (), "test")
    assert changed(config, (), "test") == config
    assert changed(config, {"target.threads": 2}, "test").search == config.search


def test_a_run_that_goes_on_neither_normalises_nor_enumerates_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    given = {"model": {"source": str(tmp_path / "tiny.onnx")}, "cache": {"dir": str(tmp_path / "cache")}}
    backends, outcome = Backends((get_backend("onnxruntime"),)), Outcome(1.0, error=0.0)
    single = NormalisedBaselines((Baseline("onnxruntime", "onnxruntime", "default", tmp_path, outcome),))

    def begun() -> tuple[SearchableModel, Matches]:
        with open_run(parse_config(given, (), "test"), tmp_path / "run", LineReporter()) as (run, model):
            made = {RunContext: run, PreparedModel: model, Backends: backends, NormalisedBaselines: single}
            records = Records(PLAN, {**made, Calibrated: Calibrated(None)})
            return records[SearchableModel], records[Matches]

    model, found = begun()
    for module, name in (("model", "searchable"), ("matches", "enumerate_matches"), ("matches", "excluded_engines")):
        monkeypatch.setattr(f"collage_evo.run.stages.{module}.{name}", None)
    again, same = begun()
    assert same == found
    assert (again.origin, again.normalisation_error) == (model.origin, model.normalisation_error)
    assert costs_key(again.graph, same, Target()) == costs_key(model.graph, found, Target())
    tiny = ModelFile(str(tmp_path / "tiny.onnx")).load().original
    tiny.graph.node[0].name = "another"
    onnx.save(tiny, tmp_path / "tiny.onnx")
    with pytest.raises(InputError, match=r"differs from the model that the run in .* began with: restore that file"):
        begun()


def test_of_a_model_that_gives_nan_alone_no_error_is_told_and_only_float32_answers(tmp_path: Path) -> None:
    b = Builder("nan")
    x = b.input("x", (1, 16))
    onnx.save(b.model(b.op("Sqrt", b.op("Neg", b.op("Exp", x)))), tmp_path / "nan.onnx")
    given = {**QUICK, "accuracy.budget": 0.02, "model.source": str(tmp_path / "nan.onnx")}
    config = parse_config(nested({**given, "cache.dir": str(tmp_path / "cache")}), (), "test")
    result = run_in(tmp_path / "run", start_run(tmp_path / "run", config))
    assert NOTHING_FINITE in result.notes
    assert (result.accuracy.error_search, result.accuracy.error_held_out) == (None, None)
    assert all(point.exact for point in result.front)


@pytest.mark.parametrize("make", [misoptimised.fused_wrongly, misoptimised.fails_when_fused])
def test_a_library_that_optimises_wrongly_is_no_answer(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    onnx.save(make(), tmp_path / "m.onnx")
    given = {**QUICK, "accuracy.budget": 0.02, "model.source": str(tmp_path / "m.onnx")}
    config = parse_config(nested({**given, "cache.dir": str(tmp_path / "cache")}), (), "test")
    result = run_in(tmp_path / "run", start_run(tmp_path / "run", config))
    failed = {one.name for one in result.baselines if one.reason}
    assert "onnxruntime" in failed
    assert "onnxruntime/unoptimised" not in failed
    feeds = random_inputs(make(), seed=5)
    (found,) = load_artifact(tmp_path / "run" / "best.collage").run(None, feeds)
    assert relative_error(found, reference_outputs(make(), feeds)[0]).relative < 1e-5


def declares(outputs: str, nodes: str, size: str = "3") -> onnx.ModelProto:
    text = f"g (float[{size}, 4] x) => ({outputs}) {{ r = Relu(x) {nodes} }}"
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def test_outputs_are_described_as_the_file_declares_them_where_one_depends_on_data(tmp_path: Path) -> None:
    onnx.save(declares("float[3, 4] z, int64[2, found] y", "z = Neg(r) y = NonZero(r)"), tmp_path / "m.onnx")
    config = parse_config({"model": {"source": str(tmp_path / "m.onnx")}}, (), "test")
    with open_run(config, tmp_path / "run", LineReporter()) as (run, prepared):
        signature = fall_back(run, prepared, Backends()).signature
    assert [(one.name, one.shape) for one in signature.outputs] == [("z", [3, 4]), ("y", [2, "found"])]
    assert signature == signature_of(onnx.load(tmp_path / "m.onnx"))


@pytest.mark.parametrize("damage", ["edit", "edit unseen", "lose"])
def test_artifacts_that_were_changed_are_written_again_when_a_run_goes_on(tmp_path: Path, damage: str) -> None:
    onnx.save(declares("float[rows, 4] z", "z = Neg(r)", "rows"), tmp_path / "m.onnx")
    given = nested({**QUICK, "cache.dir": str(tmp_path / "cache"), "model.shapes": {"x": [3, 4]}})
    given["model"] |= {"source": str(tmp_path / "m.onnx")}
    reporter: Any = SimpleNamespace(**dict.fromkeys(("stage", "advance", "expect"), lambda *given: None), lines=[])
    reporter.log = reporter.lines.append
    backends = Backends((get_backend("onnxruntime"),))
    with open_run(parse_config(given, (), "test"), tmp_path / "run", reporter) as (run, model):
        best = Publisher(run, fall_back(run, model, backends))

        def measured() -> Baselines:
            return measure_baselines(run, model, backends, WarmStart(), best, Seconds(math.inf))

        first = measured()
        artifacts = [path for path in (fall_back(run, model, backends).fallback, first[0].artifact) if path]
        for artifact in artifacts:
            file = next(artifact.rglob("*.onnx"))
            if damage != "lose":
                content, before = file.read_bytes(), file.stat()
                file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
                if damage == "edit unseen":
                    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            else:
                file.unlink()
            with pytest.raises(InputError):
                read_artifact(artifact)
        assert measured() == first
        assert fall_back(run, model, backends).fallback == artifacts[0]
        assert all(map(read_artifact, artifacts))
        assert sum("was changed or removed, so it is written again" in line for line in reporter.lines) == 1
        lines = len(reporter.lines)
        assert measured() == first
        assert len(reporter.lines) == lines


def test_a_run_that_goes_on_relies_on_no_digest_of_an_earlier_process(tmp_path: Path) -> None:
    remembered = tmp_path / "run" / "work" / "digests" / "one"
    remembered.parent.mkdir(parents=True)
    remembered.write_text("0" * 64)
    onnx.save(declares("float[3, 4] z", "z = Neg(r)"), tmp_path / "m.onnx")
    given = nested({**QUICK, "cache.dir": str(tmp_path / "cache"), "model.source": str(tmp_path / "m.onnx")})
    with open_run(parse_config(given, (), "test"), tmp_path / "run", LineReporter()):
        assert not remembered.exists()


def test_an_output_that_is_declared_wrongly_takes_other_shapes_too(tmp_path: Path) -> None:
    onnx.save(declares("float[7, 4] z, float[rows, 4] w", "z = Neg(r) w = Exp(r)", "rows"), tmp_path / "m.onnx")
    source = {"source": str(tmp_path / "m.onnx"), "shapes": {"x": [3, 4]}}
    config = parse_config({"model": source, "cache": {"dir": str(tmp_path / "cache")}}, (), "test")
    with open_run(config, tmp_path / "run", LineReporter()) as (run, prepared):
        delivered = fall_back(run, prepared, Backends((get_backend("onnxruntime"),)))
    with load_artifact(not_none(delivered.fallback)) as session:
        for rows in (3, 5):
            x = np.full((rows, 4), 2, np.float32)
            z, w = session.run(None, {"x": x})
            np.testing.assert_array_equal(z, -x)
            np.testing.assert_allclose(w, np.exp(x), rtol=1e-6)
