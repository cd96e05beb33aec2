"""What a lower precision loses is measured over samples, and refused only beyond the front's end."""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.samples import Sample, plain_outputs, read_samples, write_samples
from collage_evo.fitness.jobs import (
    CostJob,
    FallbackJob,
    JudgeJob,
    Measured,
    Opened,
    OpenJob,
    PlacementJob,
    Setting,
    WholeJob,
)
from collage_evo.fitness.judging import FEW, PART, Estimate, Judge
from collage_evo.fitness.references import write_references
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failed, Failure, Fault
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.noise import Noise
from collage_evo.graph.reference.reference import Reference
from collage_evo.patterns.match import Region
from collage_evo.pruning import LARGE_ERROR, SLOW_JUDGING
from collage_evo.runtime.manifest import computes_exactly
from collage_evo.runtime.session import Session
from tests.fitness.helpers import TIMING, make_setting
from tests.runtime.helpers import TARGET
from tests.runtime.helpers import whole as whole_program
from tests.support.clock import install_clock
from tests.support.faults import install_backend
from tests.support.models import parse_graph
from tests.support.rounding import ERROR, RoundingBackend
from tests.support.typed import not_none

SAMPLES = 6
METRIC = """
def closeness(outputs, items):
    return 100.0 - sum(abs(o - i["truth"]).mean() for out, i in zip(outputs, items) for o in out.values())

def of_many(outputs, items):
    if len(outputs) < 6:
        raise ValueError("too few")
    return 1.0
"""


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """A small model with samples, and a backend that is wrong by ``ERROR`` in its low precision."""
    folder = tmp_path_factory.mktemp("judging")
    setting = make_setting(folder)
    model = onnx.load(setting.files.original)
    reference, names = Reference(model), [value.name for value in model.graph.output]
    samples = []
    for seed in range(SAMPLES):
        feeds = random_inputs(model, seed)
        expected = plain_outputs(names, reference.run(feeds))
        samples.append(Sample(feeds, {"truth": expected[names[0]]}, expected))
    write_samples(setting.files.search, samples)
    (folder / "metric.py").write_text(METRIC)
    with pytest.MonkeyPatch.context() as patch:
        install_clock(folder / "plugin")
        plugin: Mapping[str, str] = install_backend(folder / "plugin", RoundingBackend)
        for name, value in plugin.items():
            patch.setenv(name, value)
        yield replace(setting, limits=replace(setting.limits, budget=0.01, front=0.1))


def whole(setting: Setting, variant: str) -> WholeJob:
    artifact = Path(setting.work) / f"{variant}.collage"
    return WholeJob("rounding", variant, str(artifact), TIMING)


def test_a_low_precision_has_its_error_over_all_samples_and_an_artifact_that_says_so(setting: Setting) -> None:
    with Sandbox(setting, (), 2**30) as sandbox:
        low, exact = (sandbox.call(whole(setting, variant), 60.0) for variant in ("low", "default"))
        assert isinstance(low, Measured), low
        assert low.relative_error == pytest.approx(ERROR, rel=0.01)
        assert isinstance(exact, Measured)
        assert exact.relative_error < 1e-6
        artifact = Path(whole(setting, "low").artifact)
        assert not computes_exactly(artifact)
        assert computes_exactly(Path(whole(setting, "default").artifact))
        assert isinstance(sandbox.call(OpenJob(str(artifact)), 60.0), Opened), "though over the tolerance"
        judged = sandbox.call(JudgeJob(str(artifact), str(setting.files.search)), 60.0)
    assert isinstance(judged, Judgement)
    assert (judged.samples, judged.error) == (SAMPLES, pytest.approx(ERROR, rel=0.01))
    assert not_none(judged.low) <= judged.error <= not_none(judged.high)


def test_rows_of_an_artifact_that_takes_any_batch_are_judged_in_a_batch(tmp_path: Path) -> None:
    model = parse_graph("g (float[n, 4] x) => (float[n, 4] y) { low = ReduceMin<keepdims = 1> (x) y = Sub(x, low) }")
    setting = make_setting(tmp_path)
    onnx.save(model, setting.files.dynamic)
    feeds = [random_inputs(model, seed, {"x": (1, 4)}) for seed in range(3)]
    write_samples(setting.files.search, [Sample(one, {}, {"y": Reference(model).run(one)[0]}) for one in feeds])
    write_references(setting.files.reference, [(feeds[0], {"y": Reference(model).run(feeds[0])[0]})])
    with Sandbox(setting, (), 2**33) as sandbox:
        sandbox.call(FallbackJob("onnxruntime", "default", str(tmp_path / "any.collage"), 2), 60.0)
        judged = sandbox.call(JudgeJob(str(tmp_path / "any.collage"), str(setting.files.search)), 60.0)
    assert isinstance(judged, Judgement)
    assert judged.error == 0.0
    assert judged.invariance.padding is None
    assert not_none(judged.invariance.batch).largest > 0.01, "the least number is that of all rows"


class Given:
    """A session that gives ``wrong`` times what is right for one sample after the other; counts what it was asked."""

    def __init__(self, judge: Judge, wrong: float = 1 + ERROR) -> None:
        self._judge, self._wrong = judge, wrong
        self.asked = 0

    def run(self, names: list[str], feeds: Any) -> list[np.ndarray]:
        expected = self._judge.samples[self.asked % SAMPLES].expected
        self.asked += 1
        return [expected[name] * self._wrong for name in names]


def test_few_samples_estimate_an_error_and_tell_whether_all_are_worth_it(setting: Setting, tmp_path: Path) -> None:
    judge = Judge(setting)
    session: Any = Given(judge)
    estimate = not_none(judge.estimate(session, False))
    assert estimate.error == pytest.approx(ERROR, rel=0.01)
    assert session.asked == FEW
    assert judge.over_samples(session, False, known=estimate.pairs) == pytest.approx(ERROR, rel=0.01)
    assert session.asked == SAMPLES, "those of the estimate are not run again"
    assert judge.estimate(session, True) is None
    too_large = 1.01 * LARGE_ERROR.number * 0.01
    assert [judge.promising(Estimate(1.0, least)) for least in (0.5 * 0.01, too_large)] == [True, False]
    few = replace(setting, work=str(tmp_path))
    write_samples(few.files.search, judge.samples[:FEW])
    assert not Judge(few).promising(Estimate(0.001, 0.001)), "all were seen"


def test_one_sample_that_is_far_off_among_few_decides_nothing(setting: Setting) -> None:
    class OnceWrong(Given):
        def run(self, names: list[str], feeds: Any) -> list[np.ndarray]:
            self._wrong = 2.0 if self.asked == 0 else 1 + ERROR
            return super().run(names, feeds)

    judge = Judge(setting)
    estimate = judge.estimate(cast("Session", OnceWrong(judge)), False)
    assert estimate is not None, "more than any answer may be off, but only by one sample"
    assert estimate.error > setting.limits.measured
    assert estimate.least == pytest.approx(ERROR, rel=0.01)
    assert judge.promising(estimate)
    with pytest.raises(Failed):  # unless no other samples are looked at
        judge.accepted(estimate.error, False)
    assert judge.accepted(ERROR, False) == ERROR
    by_worst = Judge(replace(setting, over="worst"))
    with pytest.raises(Failed):  # one is enough there
        by_worst.estimate(cast("Session", OnceWrong(by_worst)), False)


def test_of_a_metric_a_part_of_the_samples_tells_roughly_unless_all_have_to(setting: Setting) -> None:
    metric = f"{Path(setting.work) / 'metric.py'}:closeness"
    judge = Judge(replace(setting, metric=metric))
    session: Any = Given(judge)
    assert judge.estimate(session, False) is None
    assert session.asked == 0
    (first,) = judge.samples[: SAMPLES // PART]
    dropped = judge.roughly(session, False)
    assert dropped == pytest.approx(ERROR * abs(first.labels["truth"]).mean(), rel=0.01)
    assert session.asked == SAMPLES // PART
    assert Judge(setting).roughly(session, False) is None, "few samples tell the relative error"
    strict = replace(setting, metric=metric, limits=replace(setting.limits, front=0.5 * dropped))
    assert Judge(strict).roughly(session, False) is None, "it would be refused"
    many = Judge(replace(setting, metric=metric.replace("closeness", "of_many")))
    assert many.roughly(session, False) is None, "it takes no part"
    assert many.over_samples(cast(Session, Given(many)), False) == pytest.approx(0.0)


def test_who_takes_too_long_over_a_part_of_the_samples_is_not_asked_for_all(setting: Setting) -> None:
    ticks = itertools.count(step=2 * SLOW_JUDGING.number)
    clock: Any = lambda: next(ticks)  # noqa: E731
    judge = Judge(replace(setting, metric=f"{Path(setting.work) / 'metric.py'}:closeness"), clock, clock)
    with pytest.raises(Failed) as late:
        judge.roughly(cast(Session, Given(judge)), False)
    assert (late.value.failure.fault, late.value.failure.rule) == (Fault.FAR_BEHIND, SLOW_JUDGING.name)


@pytest.mark.parametrize(("each_s", "late"), [(10.0, False), (20.0, True)])
def test_time_for_which_a_judge_is_halted_is_none_of_its_own(
    setting: Setting, each_s: float, late: bool
) -> None:
    now = [0.0, 0.0]
    judge = Judge(setting, lambda: now[0], lambda: now[1])

    class Slow(Given):
        def run(self, names: list[str], feeds: Any) -> list[np.ndarray]:
            now[0] += each_s + (1000.0 if self.asked == 1 else 0.0)
            now[1] += each_s
            return super().run(names, feeds)

    with pytest.raises(Failed) if late else contextlib.nullcontext():
        judge.over_samples(cast(Session, Slow(judge)), False)


def test_over_the_worst_one_sample_decides(setting: Setting) -> None:
    judge = Judge(replace(setting, over="worst"))
    asked: list[Any] = []

    def run(names: list[str], feeds: Any) -> list[np.ndarray]:
        asked.append(feeds)
        expected = judge.samples[(len(asked) - 1) % SAMPLES].expected
        return [expected[name] * (1 + (0.05 if len(asked) == 3 else 0.001)) for name in names]

    session: Any = SimpleNamespace(run=run)
    assert judge.over_samples(session, False) == pytest.approx(0.05, rel=0.01)
    asked.clear()
    found = judge.closely(session, setting.files.search)
    assert (found.error, found.beyond(0.01)) == (pytest.approx(0.05, rel=0.01), 1)
    assert 0.001 < found.together < 0.05


def test_labels_in_a_lower_precision_are_off_by_how_many_differ_and_not_by_how_much(setting: Setting) -> None:
    session: Any = SimpleNamespace(run=lambda names, feeds: [np.array([90, 5])], copies=lambda name: [])
    references: list[Any] = [({}, {"label": np.array([2, 5])})]
    assert Judge(setting).check(session, references, exact=False).relative == 0.5
    with pytest.raises(Failed):  # in float32 a label does not change
        Judge(setting).check(session, references, exact=True)


def test_an_error_beyond_the_end_of_the_front_is_refused_and_a_piece_only_if_it_is_broken(setting: Setting) -> None:
    with Sandbox(replace(setting, limits=replace(setting.limits, front=ERROR / 2)), (), 2**30) as sandbox:
        refused = sandbox.call(whole(setting, "low"), 60.0)
        piece = sandbox.call(CostJob(Region(1, "rounding", "low"), TIMING, 1e9, flush=False), 60.0)
    assert isinstance(refused, Failure)
    assert (refused.fault, refused.relative_error) == (Fault.WRONG_NUMBERS, pytest.approx(ERROR, rel=0.01))
    assert isinstance(piece, Measured), "what a piece adds is judged in the whole"


def test_with_a_metric_the_error_is_its_drop(setting: Setting) -> None:
    metric = f"{Path(setting.work) / 'metric.py'}:closeness"
    samples = np.load(setting.files.search)
    truths = [samples[key] for key in samples.files if "label" in key]
    with Sandbox(replace(setting, metric=metric), (), 2**30) as sandbox:
        low, exact = (sandbox.call(whole(setting, variant), 60.0) for variant in ("low", "default"))
    assert isinstance(low, Measured), low
    assert low.relative_error == pytest.approx(sum(ERROR * abs(truth).mean() for truth in truths), rel=0.01)
    assert isinstance(exact, Measured), exact
    assert exact.relative_error == pytest.approx(0.0, abs=1e-3)


def test_with_a_metric_a_placement_that_is_behind_is_judged_on_a_part_of_the_samples(setting: Setting) -> None:
    metric = f"{Path(setting.work) / 'metric.py'}:closeness"
    regions = (Region(0b11, "rounding", "low"),)
    with Sandbox(replace(setting, metric=metric), (), 2**30) as sandbox:
        jobs = (PlacementJob(regions, TIMING, 1e9, best_ms) for best_ms in (math.inf, 1e-9))
        near, behind = (sandbox.call(job, 60.0) for job in jobs)
    assert isinstance(near, Measured), near
    assert isinstance(behind, Measured), behind
    assert (near.rough, behind.rough) == (False, True)
    assert 0 < behind.relative_error < near.relative_error


def test_a_placement_that_is_behind_is_judged_on_few_samples_unless_the_job_asks_for_all(
    setting: Setting, tmp_path: Path
) -> None:
    shutil.copytree(setting.work, tmp_path / "work")
    other, samples = replace(setting, work=str(tmp_path / "work")), read_samples(setting.files.search)
    wrong = [replace(one, expected={name: 1.05 * value for name, value in one.expected.items()}) for one in samples]
    write_samples(other.files.search, [*samples[:FEW], *wrong[FEW:]])
    regions = (Region(0b11, "rounding", "low"),)
    with Sandbox(other, (), 2**30) as sandbox:
        jobs = (PlacementJob(regions, TIMING, 1e9, 1e-9, on_all_samples=asked) for asked in (False, True))
        few, every = (sandbox.call(job, 60.0) for job in jobs)
    assert isinstance(few, Measured), few
    assert isinstance(every, Measured), every
    assert few.relative_error == pytest.approx(ERROR, rel=0.01)
    assert every.relative_error > 2 * ERROR


@pytest.mark.parametrize(("changed", "right"), [(1, True), (50, False)])
def test_in_float32_rounding_excuses_as_many_choices_as_it_changes_and_none_at_edges(
    changed: int, right: bool, tmp_path: Path
) -> None:
    model = parse_graph("g (float[1, 50] x) => (int64[1, 50] i) <int64[1] k = {50}> { v, i = TopK(x, k) }")
    feeds = random_inputs(model, seed=1)
    expected = {"i": Reference(model).run(feeds)[0]}
    expected["i"][0, :changed] += 1
    setting = replace(make_setting(tmp_path), limits=Limits(1e-3, excused={"i": Noise(1.3, 0.05)}))
    write_references(setting.files.edges, [(feeds, expected)])
    with Session([whole_program(model, tmp_path)], TARGET) as session:
        with contextlib.nullcontext() if right else pytest.raises(Failed):
            Judge(setting).check(session, [(feeds, expected)], exact=True)
        with pytest.raises(Failed):
            Judge(setting).check_edges(session, exact=True)
