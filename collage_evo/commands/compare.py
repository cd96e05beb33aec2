"""``compare``: an artifact against each library with its defaults, against the front that it comes from, or against
itself in the environment of another Python.

All run on this machine, in turns and on the same samples.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.limits import Limits, beyond
from collage_evo.accuracy.samples import Sample, write_samples
from collage_evo.answer.baselines import Baseline, measure_as_it_comes
from collage_evo.answer.race import Race, race
from collage_evo.answer.sequential import Ratio, Stopping
from collage_evo.backends.select import select_backends
from collage_evo.backends.variants import AS_IT_COMES
from collage_evo.commands.compared import ComparedArtifact
from collage_evo.commands.front_again import compile_front
from collage_evo.commands.upgrade import compile_there, other_versions
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import Profiled
from collage_evo.fitness.judging import BROKEN
from collage_evo.genome.failure import Failure
from collage_evo.graph.check.edges import chooses
from collage_evo.graph.ir.weights import all_weight_bytes
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.open_shapes import OpenShapes
from collage_evo.graph.prepare import PreparedModel
from collage_evo.hardware.presence import Lookout
from collage_evo.hardware.private import machine_directory
from collage_evo.hardware.processor import this_machine
from collage_evo.pruning import COMPARED_LIBRARY
from collage_evo.report.comparison import ARTIFACT, Comparison, Side, failed
from collage_evo.report.progress import Reporter
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext, Workplace
from collage_evo.run.samples import model_file
from collage_evo.run.stages.model import lay_out, run_once, run_open
from collage_evo.run.stages.samples import (
    HELD_OUT_SECONDS,
    expected_of,
    noise_of_choices,
    random_samples,
    require_finite,
)
from collage_evo.runtime.artifact import read_artifact

RANDOM_SAMPLES = 16
CLOSE = 0.01
"""The race ends once the interval of each ratio reaches no farther than this to either side."""


def compare(
    compared: ComparedArtifact,
    reporter: Reporter,
    budget: float | str | None = None,
    libraries: Sequence[str] = (),
    seconds: float = 30.0,
    at_least: float = 1.0,
    front: bool = False,
    python: str = "",
) -> Comparison:
    """Race an artifact against libraries with their defaults or against its front, and judge all on the same samples.

    The objective that the artifact was made for is the one that is timed.

    Args:
        compared: the artifact.
        reporter: receives progress.
        budget: replaces the one that the artifact was made for.
        libraries: names of backends; by default all that are usable here, or none with ``front``.
        seconds: of the race; three rounds are made however long they take.
        at_least: the ratio to decide: rounds go on until the artifact is known to be so many times
            as fast as a library or not, or time is over.
        front: also race the other points of the run's front, compiled for this machine; on another processor than
            the artifact's the answer is compiled again too.
        python: interpreter of another environment, in which the answer, its fall-back and the libraries run too.

    Raises:
        CollageError: the file or the samples cannot be used, or the artifact has no front, or the other environment
            lacks this package.
    """
    recorded = compared.run if front or python else None
    if (front or python) and recorded is None:
        text = f"{compared.artifact} is in no run directory, so its {'front' if front else 'placement'} is not known"
        raise InputError(f"{text}: give the run directory, or leave out {'--front' if front else '--python'}")
    versions = other_versions(python) if python else {}
    with _opened(compared, reporter) as (run, model, samples):
        sides: Sequence[Side] = (Side(ARTIFACT),)
        artifacts: Mapping[str, Path] = {ARTIFACT: compared.artifact}
        if recorded is not None and front:
            with run.stage(Stage.COMPILE_FRONT):
                sides, artifacts = compile_front(run, recorded, compared.artifact)
        baselines = _baselines(run, libraries) if libraries or not front else ()
        sides = [*sides, *map(_library, baselines)]
        if recorded is not None and python:
            elsewhere = replace(run, machine=run.machine.by(python), directory=run.directory / "there")
            with run.stage(Stage.COMPILE_FRONT):
                more, compiled = compile_there(run, recorded, compared.artifact, elsewhere)
            there = _baselines(elsewhere, libraries)
            sides, artifacts = [*sides, *more, *(_library(one, python) for one in there)], {**artifacts, **compiled}
            baselines = (*baselines, *(replace(one, name=_library(one, python).key) for one in there))
        pythons = {side.key: side.python for side in sides if side.python}
        with run.stage(Stage.COMPARE):
            turns = _race(run, artifacts, baselines, seconds, at_least, pythons)
        with run.stage(Stage.COMPARE_ERRORS):
            raced = {name: path for name, path in artifacts.items() if name in turns.rounds}
            ran = {b.name: b.artifact for b in baselines if b.outcome.latency_ms is not None}
            errors = {
                name: run.machine.by(pythons.get(name, "")).judge(path, samples, moves=False)
                for name, path in {**raced, **ran}.items()
            }
        sessions, call_ms = run.machine.sessions, None
        if ARTIFACT in turns.rounds and sessions == 1:
            with run.stage(Stage.VERIFY):
                _, profile = run.machine.check(compared.artifact)
            call_ms = profile.call_ms if isinstance(profile, Profiled) else None
    comparison = _comparison(compared, model, turns, sides, errors, budget or compared.asked)
    return replace(comparison, sessions=sessions, call_ms=call_ms, versions=versions)


@contextlib.contextmanager
def _opened(compared: ComparedArtifact, reporter: Reporter) -> Iterator[tuple[RunContext, PreparedModel, Path]]:
    """A workplace for measurements of ``compared``, the user's model, and the file of samples with its outputs for
    them."""
    with tempfile.TemporaryDirectory(prefix="collage_evo-") as folder:
        place = Workplace(compared.config, Path(folder), reporter)
        place.work.mkdir()
        with Lookout(machine_directory(), place.name, reporter.log):
            with place.stage(Stage.MODEL):
                model, samples = _prepared(place, compared)
            excused = beyond(compared.config.verify.tolerance, model.excused)
            limits = Limits(BROKEN, excused=excused)  # the error is measured, however large it is
            run = RunContext.at(place, limits, all_weight_bytes(model.original))
            try:
                yield run, model, samples
            finally:
                run.machine.close()


def _prepared(place: Workplace, compared: ComparedArtifact) -> tuple[PreparedModel, Path]:
    file, inputs, shapes = model_file(compared.config), compared.samples, compared.shapes
    if isinstance(shapes, OpenShapes):
        inputs = inputs or random_samples(file.declared, shapes).held_out
        model = run_open(compared.config, file, inputs)
    else:
        model = run_once(compared.config, file, [sample.feeds for sample in inputs[:1]])
        seeds = range(3000, 3000 + RANDOM_SAMPLES)
        inputs = inputs or tuple(Sample(random_inputs(model.original, k, shapes, model.fixed)) for k in seeds)
    lay_out(place, model)
    if not compared.config.verify.keeps_nonfinite:
        require_finite(model, compared.samples)
    samples = place.work / "compared.npz"
    judged = expected_of(model, inputs, lambda count: HELD_OUT_SECONDS)
    write_samples(samples, judged)
    return noise_of_choices(model, judged) if chooses(model.original) else model, samples


def _baselines(run: RunContext, libraries: Sequence[str]) -> tuple[Baseline, ...]:
    target = run.config.target
    with run.stage(Stage.COMPARE_BASELINES):
        names = tuple(libraries) or tuple(run.config.backends.use)
        backends = select_backends(names, target)
        return measure_as_it_comes(backends, run.work, run.machine, run.config.fitness.timing.settings())


def _race(
    run: RunContext,
    artifacts: Mapping[str, Path],
    baselines: Sequence[Baseline],
    seconds: float,
    at_least: float,
    pythons: Mapping[str, str],
) -> Race:
    """Race the artifacts and all libraries that are not far behind, until all ratios are known or time is over."""
    times = {b.name: b.outcome.latency_ms for b in baselines if b.outcome.latency_ms is not None}
    fastest = min(times.values(), default=math.inf)
    near = {b.name: b.artifact for b in baselines if times.get(b.name, math.inf) <= COMPARED_LIBRARY.number * fastest}
    front = [name for name in artifacts if name != ARTIFACT]
    decisive = {**dict.fromkeys(near, at_least), **dict.fromkeys(front, 1.0)}
    # Ratios are of the artifact here over the others: another environment is too slow from the reciprocal on.
    decisive |= dict.fromkeys(decisive.keys() & pythons.keys(), 1.0 / at_least)
    stopping = Stopping(run.config.final.rounds, max(1, len(decisive)), run.config.policy)

    def still(so_far: Race) -> Collection[str]:
        runs = ARTIFACT in so_far.rounds
        # Without the artifact there is no ratio, but the front's times say what would be the answer here.
        if so_far.over(seconds) or not (runs or front):
            return ()
        run.reporter.advance()
        rivals = [name for name in decisive if name in so_far.rounds]
        decided = runs and all(
            _is_known(so_far.ratio(name, ARTIFACT, stopping.significance), decisive[name]) for name in rivals
        )
        return () if decided and so_far.length in stopping.looks else list(so_far.rounds)

    return race({**near, **artifacts}, run.machine, stopping.rounds, still, pythons=pythons)


def _is_known(ratio: Ratio, at_least: float) -> bool:
    """Whether it is known on which side of ``at_least`` a ratio is, or the ratio itself is known precisely."""
    return not ratio.low <= at_least <= ratio.high or ratio.high <= ratio.low * math.exp(2 * CLOSE)


def _comparison(
    compared: ComparedArtifact,
    model: PreparedModel,
    turns: Race,
    sides: Sequence[Side],
    errors: Mapping[str, Judgement | Failure],
    asked: float | str,
) -> Comparison:
    # With so many rivals one test is stricter, so that all together err as rarely as one.
    significance = Stopping(candidates=max(1, len(turns.rounds) - 1), policy=compared.config.policy).significance
    judgement = next((error for error in errors.values() if isinstance(error, Judgement)), None)
    metric, score = bool(compared.config.accuracy.metric), judgement.reference_score if judgement else None
    limits = Limits.decide(asked, compared.config.verify.tolerance, model.excused, metric, score)
    measured = [_measured(side, turns, errors.get(side.key), limits, significance) for side in sides]
    here = [side for side in measured if not side.python]
    target = read_artifact(compared.artifact).target
    return Comparison(
        artifact=str(compared.artifact),
        shapes=compared.shapes.written if isinstance(compared.shapes, OpenShapes) else compared.shapes,
        file=compared.file,
        threads=target.threads,
        cpu=this_machine().cpu,
        samples=judgement.samples if judgement else 0,
        sample_source=compared.sample_source,
        metric=compared.config.accuracy.metric,
        budget=limits.accepted if math.isfinite(limits.accepted) else None,
        ours=next(side for side in here if side.name == ARTIFACT),
        libraries=tuple(side for side in here if side.name != ARTIFACT and side.before is None),
        front=tuple(side for side in here if side.name != ARTIFACT and side.before is not None),
        there=tuple(side for side in measured if side.python),
        rounds=turns.length,
        seconds=turns.seconds,
        made_on=target.machine.cpu,
        other_processor=this_machine().other_than(target.machine),
        other_file=bool(compared.sha256) and model.digest != compared.sha256,
    )


def _library(baseline: Baseline, python: str = "") -> Side:
    side = Side(baseline.name, baseline.variant == AS_IT_COMES, baseline.outcome.latency_ms, python=python)
    return side if baseline.outcome.failure is None else failed(side, baseline.outcome.failure)


def _measured(
    side: Side, turns: Race, judged: Judgement | Failure | None, limits: Limits, significance: float
) -> Side:
    """``side`` with the results of the race and of the samples."""
    side = _raced(side, turns, judged)
    side = replace(side, feasible=side.latency_ms is not None and _allowed(side, limits))
    if side.key == ARTIFACT or side.latency_ms is None or ARTIFACT not in turns.rounds:
        return side
    if side.raced:
        answer = replace(side, name=ARTIFACT).key
        rivals = {side.name, answer} & turns.rounds.keys() if side.python else ()
        known = {rival: turns.ratio(rival, side.key, significance) for rival in rivals}
        return replace(
            side,
            over=turns.ratio(side.key, ARTIFACT, significance),
            over_here=known.get(side.name),
            over_answer=known.get(answer),
        )
    ratio = side.latency_ms / turns.timing(ARTIFACT).median_ms
    reason = side.reason or "so far behind that it took no turns"
    return replace(side, over=Ratio(ratio, ratio, ratio, ()), reason=reason)


def _allowed(side: Side, limits: Limits) -> bool:
    if side.before is not None:
        return limits.allows(side.error, side.before.exact)
    return math.isinf(limits.accepted) or (side.error is not None and side.error <= limits.accepted)


def _raced(side: Side, turns: Race, judged: Judgement | Failure | None) -> Side:
    if isinstance(judged, Judgement) and math.isfinite(judged.error):
        side = replace(side, error=max(0.0, judged.error))
    elif isinstance(judged, Failure):
        side = failed(side, judged)
    if side.key in turns.failed:
        return failed(replace(side, latency_ms=None), turns.failed[side.key])
    if side.key not in turns.rounds:
        return side
    served = turns.serving[side.key]
    latency = turns.timing(side.key).median_ms
    return replace(side, latency_ms=latency, raced=True, load_ms=served.load_ms, peak_bytes=served.peak_bytes)
