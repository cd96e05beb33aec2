"""``recheck``: measures an answer and its front again, without a search, and compares then with now.

Placements are compiled for this machine from the run's own normalised model, so that one may run here whose artifact
does not.
"""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.limits import Limits
from collage_evo.answer.baselines import measure_one
from collage_evo.answer.race import Race, race
from collage_evo.backends.registry import get_backend
from collage_evo.codec import to_json
from collage_evo.commands.compare import limits_of, opened
from collage_evo.commands.compared import ComparedArtifact
from collage_evo.files import link_or_copy, write_whole
from collage_evo.placement.failure import Failure
from collage_evo.report.comparison import Again, Rechecked
from collage_evo.report.progress import Reporter
from collage_evo.report.result import FrontPoint
from collage_evo.report.words import describe_failure, raw_words
from collage_evo.run.context import RunContext
from collage_evo.run.front import marked
from collage_evo.run.recorded import RecordedRun
from collage_evo.run.stages.compile import write_placements
from collage_evo.run.stages.held_out import judged
from collage_evo.runtime.artifact import read_artifact
from collage_evo.statistics import LEVEL
from collage_evo.target.processor import this_machine

FOLDER = "rechecked"
"""Name in a run directory, or next to an artifact."""
WEIGHTS = "normalised.onnx.data"
COPIED = ("normalised.onnx", WEIGHTS, "ranges.json", "records")
"""Files of a run's work directory that recompiling its placements needs."""
MOST = 8
"""Points of the front that are measured again, the answer among them."""


def recheck(compared: ComparedArtifact, reporter: Reporter, seconds: float = 30.0) -> Rechecked:
    """Compile, judge and time the results of a run on this machine; for an artifact without a run, only that
    artifact.

    Args:
        compared: what is measured again.
        reporter: receives progress.
        seconds: of the race; three rounds are made however long they take.

    Raises:
        CollageError: the file or the samples cannot be used.
    """
    with opened(compared, reporter) as (run, model, samples):
        points = _points(compared)
        with run.stage("compiling for this machine"):
            artifacts, failed = _compiled(run, compared, points)
        with run.stage("taking turns"):
            turns = _race(run, artifacts, seconds)
        failed |= turns.failed
        with run.stage("errors on the samples"):
            errors = {name: judged(run, artifacts[name], samples) for name in turns.rounds}
    judgement = next((error for error in errors.values() if isinstance(error, Judgement)), None)
    limits = limits_of(compared, model, compared.asked, judgement)
    target = read_artifact(compared.artifact).target
    return Rechecked(
        artifact=str(compared.artifact),
        made_on=target.machine.cpu,
        cpu=this_machine().cpu,
        other_processor=this_machine().other_than(target.machine),
        samples=judgement.samples if judgement else 0,
        sample_source=compared.sample_source,
        largest=limits.accepted if math.isfinite(limits.accepted) else None,
        rounds=turns.length,
        points=_again(points, turns, errors, failed, limits),
    )


def write_rechecked(compared: ComparedArtifact, rechecked: Sequence[Rechecked], place: Path) -> Path:
    """Write the result next to the earlier ones: in a folder of the run, or of the artifact's name."""
    artifact = compared.artifact.absolute()
    in_run = place.is_dir() and artifact.parent == place.absolute()
    folder = place / FOLDER if in_run else artifact.parent / f"{artifact.stem}.{FOLDER}"
    folder.mkdir(exist_ok=True)
    paths = (folder / f"{number:03d}.json" for number in itertools.count())
    path = next(path for path in paths if not path.exists())
    write_whole(path, to_json(rechecked, indent=1))
    return path


def _points(compared: ComparedArtifact) -> Mapping[str, FrontPoint]:
    """The front's points by name, the answer first; for an artifact without a run one point from its own record."""
    if compared.run is None:
        error = compared.info.get("accuracy", {}).get("error")
        return {"answer": FrontPoint(math.nan, error, "", "the artifact", (), answer=True)}
    front = sorted(compared.run.front, key=lambda point: (not point.answer, not point.feasible, point.latency_ms))
    return {"answer" if p.answer else f"point-{k}": p for k, p in enumerate(front[:MOST])}


def _compiled(
    run: RunContext, compared: ComparedArtifact, points: Mapping[str, FrontPoint]
) -> tuple[dict[str, Path], dict[str, Failure]]:
    """Artifacts by name, compiled here, and failures; the answer is the published one, if it loads."""
    artifacts: dict[str, Path] = {"answer": compared.artifact} if "answer" in points else {}
    failed: dict[str, Failure] = {}
    if compared.run is None:
        return artifacts, failed
    _take(compared.run, run.work)
    keyed = {name: point.key for name, point in points.items() if point.key}
    foreign = bool(this_machine().other_than(read_artifact(compared.artifact).target.machine))
    wanted = {n: compared.run.placement(key) for n, key in keyed.items() if foreign or n != "answer"}
    if wanted:
        for name, written in write_placements(run, wanted).items():
            if isinstance(written, Failure):
                failed[name] = written
                artifacts.pop(name, None)
            else:
                artifacts[name] = written
    for name, point in points.items():
        if point.single and not point.key and (foreign or name != "answer"):
            backend, _, variant = point.single.partition("/")
            library = get_backend(backend)
            artifact = run.work / f"{name}.collage"
            outcome = measure_one(library, library.variant(variant or "default"), artifact, run.pool)
            if outcome.failure is not None and outcome.latency_ms is None:
                failed[name] = outcome.failure
                artifacts.pop(name, None)
            else:
                artifacts[name] = artifact
    return artifacts, failed


def _take(recorded: RecordedRun, work: Path) -> None:
    for name in COPIED:
        source = recorded.directory / "work" / name
        if source.is_dir():  # tuning goes on in its records, so they are copied
            shutil.copytree(source, work / name, copy_function=link_or_copy if name == WEIGHTS else shutil.copy2)
        elif source.exists():
            shutil.copyfile(source, work / name)


def _race(run: RunContext, artifacts: Mapping[str, Path], seconds: float) -> Race:
    def still(so_far: Race) -> Collection[str]:
        run.reporter.advance()
        return () if so_far.over(seconds) else list(so_far.rounds)

    return race(artifacts, run.whole, run.config.final.rounds, still)  # by the objective of the original timing


def _again(
    points: Mapping[str, FrontPoint],
    turns: Race,
    errors: Mapping[str, Judgement | Failure],
    failed: Mapping[str, Failure],
    limits: Limits,
) -> tuple[Again, ...]:
    now: dict[str, FrontPoint] = {}
    for name, point in points.items():
        if name in turns.rounds:
            judgement = errors[name]
            error = max(0.0, judgement.error) if isinstance(judgement, Judgement) else None
            error = error if error is not None and math.isfinite(error) else None
            ms, fit = turns.timing(name).median_ms, limits.allows(error, point.exact)
            now[name] = replace(point, latency_ms=ms, error=error, feasible=fit, raced=True, remark="")
    front = {(p.key, p.single, p.how): p for p in marked(now.values())}
    significance = (1.0 - LEVEL) / max(1, len(turns.rounds) - 1)  # so that all together have the error rate of one
    return tuple(
        Again(
            None if math.isnan(point.latency_ms) and point.error is None else point,
            front.get((point.key, point.single, point.how)),
            describe_failure(failed[name]) if name in failed else "",
            turns.ratio("answer", name, significance) if {"answer", name} <= turns.rounds.keys() else None,
            raw_words(failed.get(name)),
        )
        for name, point in points.items()
    )
