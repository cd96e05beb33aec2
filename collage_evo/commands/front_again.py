"""Front of a run, compiled again for this machine: the contestants of ``compare --front``, and the answer of
``compare --python``.

Placements are compiled from the run's own normalised model, so that one may run here whose artifact does not.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from collage_evo.answer.baselines import measure_one
from collage_evo.backends.registry import get_backend
from collage_evo.files import link_or_copy
from collage_evo.genome.failure import Failure
from collage_evo.hardware.processor import this_machine
from collage_evo.report.comparison import ARTIFACT, Side, failed
from collage_evo.report.result import FrontPoint
from collage_evo.run.context import RunContext
from collage_evo.run.recorded import RecordedRun
from collage_evo.runtime.artifact import read_artifact

COPIED = ("normalised.onnx", "normalised.onnx.data", "dynamic.onnx", "dynamic.onnx.data", "ranges.json", "records")
"""Files of a run's work directory that recompiling its placements needs."""
MOST = 8
"""Points of the front that are measured again, the answer among them."""


def compile_front(run: RunContext, recorded: RecordedRun, artifact: Path) -> tuple[list[Side], Mapping[str, Path]]:
    """The sides of the answer and of the other points of its front, and the artifacts of those that compile here.

    The answer's is the published ``artifact``, unless that was made on another kind of processor.

    Raises:
        InputError: the records of the run's search are gone.
    """
    front = sorted(recorded.front, key=lambda point: (not point.answer, not point.feasible, point.latency_ms))[:MOST]
    points = {ARTIFACT if point.answer else f"point-{k}": point for k, point in enumerate(front)}
    foreign = this_machine().other_than(read_artifact(artifact).target.machine)
    missing = {name: point for name, point in points.items() if foreign or name != ARTIFACT}
    written = {ARTIFACT: artifact, **compile_points(run, recorded, missing)}
    return contestants({Side(name, before=points.get(name)): made for name, made in written.items()})


def contestants(compiled: Mapping[Side, Path | Failure]) -> tuple[list[Side], Mapping[str, Path]]:
    """The sides, with the reasons of those that do not compile, and the artifacts of the others by name in a race."""
    sides = [failed(side, made) if isinstance(made, Failure) else side for side, made in compiled.items()]
    return sides, {side.key: made for side, made in compiled.items() if isinstance(made, Path)}


def compile_points(
    run: RunContext, recorded: RecordedRun, points: Mapping[str, FrontPoint]
) -> dict[str, Path | Failure]:
    """An artifact of each of ``points`` of the recorded run's front, compiled by the machine of ``run``, or why there
    is none.

    Raises:
        InputError: the records of the run's search are gone.
    """
    _take(recorded, Path(run.machine.setting.work))
    placements = {name: recorded.placement(point.key) for name, point in points.items() if point.key}
    written = dict(run.machine.write(placements, run.work)) if placements else {}
    return written | {n: _single(run, n, p.single) for n, p in points.items() if p.single and not p.key}


def _single(run: RunContext, name: str, engine: str) -> Path | Failure:
    """The artifact of a single backend on the user's own file."""
    backend, _, variant = engine.partition("/")
    library, artifact = get_backend(backend), run.work / f"{name}.collage"
    outcome = measure_one(library, library.variant(variant or "default"), artifact, run.machine)
    return outcome.failure if outcome.failure is not None and outcome.latency_ms is None else artifact


def _take(recorded: RecordedRun, work: Path) -> None:
    """Copy what compiling placements needs to ``work``, unless it is there."""
    for name in COPIED if not (work / COPIED[0]).exists() else ():
        source = recorded.directory / "work" / name
        if source.is_dir():  # tuning goes on in its records, so they are copied
            shutil.copytree(source, work / name, copy_function=shutil.copy2 if name == "records" else link_or_copy)
        elif source.exists():
            shutil.copyfile(source, work / name)
