"""Whatever won the race keeps the budget on samples never seen before, or who is next takes its place."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest

from collage_evo.accuracy.invariance import Invariance, Movement
from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.samples import Sample, write_samples
from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.race import Race
from collage_evo.config import parse_config
from collage_evo.fitness.jobs import JudgeJob, SampleJob, Timed
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import InvarianceResult
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import deadline
from collage_evo.run.samples import SHAPES
from collage_evo.run.stages.compile import CompiledCandidates
from collage_evo.run.stages.held_out import CHANCES, UNSIZED, Exclusion, HeldOut, hold_out
from collage_evo.run.stages.samples import PARTS, SAMPLES, Sampled
from collage_evo.runtime.artifact import write_artifact
from collage_evo.runtime.manifest import EXACT, Profile
from collage_evo.runtime.program import Program
from tests.runtime.helpers import TARGET
from tests.support.machine import FakeMachine, setting_of
from tests.support.typed import not_none

SAMPLED = Sampled(calibration=10, search=8, held_out=10, total=28, random=False)
SINGLE = "single"
IN_FLOAT32 = ("exact", SINGLE)
LIBRARIES = ("library", SINGLE)
PROGRAM = Program((), (), (), {})


class Run:
    """A run of which only the last word is real; ``errors`` are those on held-out samples, the fastest first."""

    def __init__(
        self, folder: Path, errors: Mapping[str, float | Failure | Judgement], spare: Sequence[str] = ()
    ) -> None:
        self.on_held_out, self.folder, self.spare, self.raced = errors, folder, spare, list[str]()
        self.seen: list[Mapping[str, float]] = []
        self.excluded = set[str]()
        self.errors = {name: 0.0 if name.startswith(IN_FLOAT32) else 0.007 for name in errors}  # in the search
        self.ms: Mapping[str, float] = {}  # on inputs of open shapes, if there are any
        self.sleep_s, self.at_once = 0.0, len(spare)
        self.model = onnx.ModelProto()
        self.artifacts = {name: self._artifact(name) for name in errors if not name.startswith((*LIBRARIES, *spare))}
        (folder / "work").mkdir(exist_ok=True)
        (folder / "work" / "judged_last.npz").touch()

    def _artifact(self, name: str) -> Path:
        write_artifact(self.folder / name, [Profile(PROGRAM, {EXACT: name.startswith(IN_FLOAT32)})], TARGET)
        return self.folder / name

    def _judge(self, name: str) -> Judgement | Failure:
        error = self.on_held_out[name]
        return Judgement(error, 10, error, error) if isinstance(error, float) else error

    def _fastest(self, placements: Mapping[str, Path], baselines: Sequence[Baseline]) -> Verdict:
        present = {*placements, *(baseline.name for baseline in baselines)}
        name = next(name for name in self.on_held_out if name in present)
        self.raced.append(name)
        return Verdict(name, SINGLE, ITSELF, name, ITSELF, Race({name: (((1.0,),),)}, {}))

    def _answer(self, job: JudgeJob | SampleJob) -> Judgement | Failure | Timed:
        name = Path(job.artifact).name
        if isinstance(job, JudgeJob):
            return self._judge(name)
        time.sleep(self.sleep_s)
        return Timed((self.ms[name],))

    def safer(self, seen: Mapping[str, float]) -> Mapping[str, Path]:
        self.seen.append(dict(seen))
        missing = [name for name in self.spare if name not in self.artifacts]
        self.artifacts |= (spare := {name: self._artifact(name) for name in missing[: self.at_once]})
        return spare

    def hold_out(self, by_metric: bool = False, batch_invariant: bool = False) -> tuple[str, HeldOut]:
        machine = FakeMachine(self._answer, setting_of(limits=Limits(1e-3, budget=0.01, by_metric=by_metric)))
        accuracy = {"batch_invariant": batch_invariant}
        config = parse_config({"model": {"source": "m.onnx"}, "accuracy": accuracy}, (), "test")
        run = RunContext(config, self.folder, LineReporter(), machine, Path(), cast(Any, ()))
        run.store.put(SAMPLES, SAMPLED)
        if self.ms:
            run.store.put(SHAPES, OpenShapes({"x": (Dimension(1, 9, "length"),)}))
            for part in PARTS:
                write_samples(run.work / f"{part}.npz", [Sample({"x": np.zeros(9, np.float32)})])
        names = [name for name in self.on_held_out if name.startswith(LIBRARIES)]
        baselines = [
            Baseline(name, name, "default", self._artifact(name), Outcome(9.0, error=1e-7)) for name in names
        ]
        model = cast(PreparedModel, SimpleNamespace(original=self.model, dynamic=None))
        verdict, held = hold_out(run, model, cast(CompiledCandidates, self), baselines, self._fastest)
        return verdict.answer, held


def test_who_keeps_the_budget_stays(tmp_path: Path) -> None:
    run = Run(tmp_path, {"low": 0.009, "exact": 1e-7, SINGLE: 1e-7})
    answer, held = run.hold_out()
    assert (answer, run.raced, held.excluded, held.notes) == ("low", ["low"], {}, ())
    assert not_none(held.judged).error == 0.009


@pytest.mark.parametrize(("judged", "advice"), [(10, "give 438 in all"), (5, "this model is too slow for so many")])
def test_too_few_held_out_samples_are_said_with_what_to_give(judged: int, advice: str, tmp_path: Path) -> None:
    (note,) = Run(tmp_path, {"low": Judgement(0.0, judged, 0.0, 0.0, changed=0.0)}).hold_out()[1].notes
    assert note.endswith(advice)


def test_who_breaks_it_is_out_and_the_next_is_raced_and_said(tmp_path: Path) -> None:
    dead = Failure(Fault.CRASH, "killed by SIGSEGV")
    run = Run(tmp_path, {"low": 0.02, "dead": dead, "other": 0.005, SINGLE: 1e-7})
    answer, held = run.hold_out()
    assert (answer, run.excluded) == ("other", {"low", "dead"})
    assert held.excluded["low"].reason == "its held-out error 0.02 exceeds the budget 0.01"
    assert held.excluded["dead"].reason == f"it could not be judged on held-out samples: {dead}"
    assert held.notes == ()


def test_who_is_likely_to_break_it_is_judged_before_the_race(tmp_path: Path) -> None:
    run = Run(tmp_path, {"low": 0.02, "near": 0.009, "far": 0.03, "safe": 0.005, SINGLE: 1e-7})
    run.errors |= {"low": 0.0099, "near": 0.0099}
    answer, held = run.hold_out()
    assert (answer, run.raced, set(held.excluded), run.excluded) == ("near", ["near"], {"low"}, {"low"})
    assert (run.hold_out(by_metric=True)[0], run.raced) == ("near", ["near", "low", "near"])
    run = Run(tmp_path, {"low": 0.02, "other": 0.03, "safe": 0.005, SINGLE: 1e-7}, spare=["safe"])
    run.errors |= {"low": 0.0099, "other": 0.0098}
    assert run.hold_out()[0] == "safe"
    assert (run.seen, run.raced) == ([{"low": 0.02, "other": 0.03}], ["safe"])
    dead = Failure(Fault.HANG, "the metric took too long")
    run = Run(tmp_path, {"low": dead, "other": dead, SINGLE: 1e-7})
    run.errors |= {"low": 0.0099, "other": 0.0098}
    assert (run.hold_out()[0], run.raced) == (SINGLE, ["low", "other", SINGLE]), "one that was not judged is raced"


def test_who_may_well_break_it_on_other_samples_is_out_but_by_a_metric(tmp_path: Path) -> None:
    errors = {"low": Judgement(0.0095, 250, 0.0065, 0.0125), "other": Judgement(0.009, 24, 0.008, 0.0105)}
    run = Run(tmp_path, {**errors, SINGLE: 1e-7})
    reason = "its held-out error 0.0095 may exceed the budget 0.01 on other samples: up to 0.013"
    answer, held = run.hold_out()
    assert (answer, held.excluded) == ("other", {"low": Exclusion(reason, 0.0125)}), "one in eleven, and one in three"
    assert run.hold_out(by_metric=True)[0] == "low", "right or wrong answers of 250 samples tell no more than that"


def test_what_races_after_one_that_may_break_it_errs_less_by_what_that_may_err(tmp_path: Path) -> None:
    low = Judgement(0.0095, 250, 0.0065, 0.0125)
    run = Run(tmp_path, {"low": low, "safer": 0.006, SINGLE: 1e-7}, spare=("safer",))
    assert (run.hold_out()[0], run.seen) == ("safer", [{"low": 0.0125}])


@pytest.mark.parametrize(
    ("libraries", "raced"),
    [
        ({}, [SINGLE]),
        ({"library bf16": 0.02, "library f16": 0.005}, ["library bf16", "library f16"]),
    ],
)
def test_after_some_placements_only_libraries_and_float32_are_asked(
    libraries: dict[str, float], raced: list[str], tmp_path: Path
) -> None:
    placements = {f"low{index}": 0.02 for index in range(9)}
    run = Run(tmp_path, {**placements, **libraries, SINGLE: 1e-7})
    assert (run.hold_out()[0], run.raced[CHANCES:]) == (raced[-1], raced)


def test_safer_ones_race_once_after_all_that_raced_broke_it(tmp_path: Path) -> None:
    dead = Failure(Fault.CRASH, "killed by SIGSEGV")
    run = Run(tmp_path, {"low": 0.02, "dead": dead, "safe": 0.009, SINGLE: 1e-7}, spare=["safe"])
    assert (run.hold_out()[0], run.seen) == ("safe", [{"low": 0.02}])
    errors = {"low0": 0.02, "low1": 0.03, "low2": 0.02, "low3": 0.02, "safe": 0.011, "exact": 0.02, SINGLE: 1e-7}
    run = Run(tmp_path, errors, spare=["safe", "exact"])
    assert (run.hold_out()[0], run.raced) == ("exact", ["low0", "low1", "low2", "safe", "exact"])
    assert len(run.seen) == 1


def test_safer_ones_are_asked_for_again_after_one_of_them_broke_it(tmp_path: Path) -> None:
    errors = {"low": 0.02, "safer": 0.03, "library": 0.02, "safest": 0.009, SINGLE: 1e-7}
    run = Run(tmp_path, errors, spare=["safer", "safest"])
    run.errors["low"], run.at_once = 0.0099, 1
    found = run.hold_out()[0], run.raced, run.seen
    seen = [{"low": 0.02}, {"low": 0.02, "safer": 0.03}]
    assert found == ("safest", ["safer", "library", "safest"], seen), "a library that exceeds it tells nothing new"


def test_float32_stays_whatever_it_loses(tmp_path: Path) -> None:
    answer, held = Run(tmp_path, {"exact": 0.02, SINGLE: 1e-7}).hold_out()
    assert (answer, held.excluded) == ("exact", {})
    answer, held = Run(tmp_path, {SINGLE: Failure(Fault.RAISED, "the metric raised")}).hold_out()
    assert answer == SINGLE
    assert "could not be judged" in held.notes[0]


MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
)
MOVED = Invariance(batch=Movement(0.1, 0.05))


def run_with_samples(folder: Path, **moved: Invariance) -> Run:
    """A run on samples of a model whose rows do not depend on each other, and answers whose rows have ``moved``."""
    run = Run(folder, {name: Judgement(0.005, 10, invariance=one) for name, one in moved.items()})
    run.model, x = MODEL, np.arange(8.0, dtype=np.float32).reshape(2, 4)
    write_samples(folder / "work" / "judged_last.npz", [Sample({"x": x}, {}, {"y": x})])
    return run


def test_how_far_rows_move_is_told_beside_float32_and_decides_only_if_asked_for(tmp_path: Path) -> None:
    run = run_with_samples(tmp_path, moves=MOVED, steady=Invariance(batch=Movement(1e-6, 1e-6)), single=MOVED)
    answer, held = run.hold_out()
    assert (answer, held.excluded) == ("moves", {})
    assert held.invariance == InvarianceResult(MOVED, Invariance(batch=Movement(0.0, 0.0)))
    answer, held = run.hold_out(batch_invariant=True)
    assert (answer, held.notes) == ("steady", ())
    assert held.excluded["moves"].reason == (
        "it is not batch invariant: a row moves by up to 0.1 in a batch, float32 by 0"
    )


def test_an_answer_of_fixed_shapes_says_that_there_was_nothing_to_measure_if_it_was_asked_for(tmp_path: Path) -> None:
    run = run_with_samples(tmp_path, fixed=Invariance(), single=Invariance())
    assert run.hold_out()[1].notes == ()
    (note,) = run.hold_out(batch_invariant=True)[1].notes
    assert note.startswith("accuracy.batch_invariant had nothing to measure")


def test_who_is_slower_at_a_size_is_out_with_all_that_are_and_a_library_is_the_last(tmp_path: Path) -> None:
    run = Run(tmp_path, dict.fromkeys(("low", "exact", "slow too", "good", SINGLE), 1e-7))
    run.ms = {"low": 1.2, "exact": 1.1, "slow too": 1.3, "good": 1.0, SINGLE: 1.0}
    answer, held = run.hold_out()
    assert (answer, run.raced, held.excluded) == ("good", ["low", "good"], {})
    assert held.slow["low"] == "at length 9 single in float32 is 1.20 times as fast"
    assert set(held.slow) == {"low", "exact", "slow too"}
    assert held.by_size is not None
    run.ms = {**run.ms, "good": 1.1}
    run.raced.clear()
    answer, held = run.hold_out()
    assert (answer, run.raced, run.seen) == (SINGLE, ["low", SINGLE], [])


def test_an_answer_that_could_not_be_compared_by_size_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, dict.fromkeys(("low", SINGLE), 1e-7))
    run.ms, run.sleep_s = {"low": 1.2, SINGLE: 1.0}, 9.0
    with deadline(12.0):  # fewer seconds are left than the delivery takes
        answer, held = run.hold_out()
    assert (answer, held.slow, held.by_size, held.notes) == ("low", {}, None, (UNSIZED,))
