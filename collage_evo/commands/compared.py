"""Compared artifacts: the profiles of an artifact for ``compare``, with what is known of their making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collage_evo.accuracy.budget import EXACT
from collage_evo.accuracy.samples import Sample, read_samples
from collage_evo.answer.delivery import MODEL, OBJECTIVE
from collage_evo.config import Config, parse_config
from collage_evo.errors import InputError
from collage_evo.report.finished import result_in
from collage_evo.report.places import home_of
from collage_evo.run.directory import CONFIG, links_in
from collage_evo.run.profiles import with_shapes
from collage_evo.run.recorded import RecordedRun, read_runs
from collage_evo.run.samples import model_file, samples_of_shapes
from collage_evo.run.trusted import CACHE, outward, require_noted
from collage_evo.runtime.artifact import Artifact, read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.package import is_package, select_variant
from collage_evo.runtime.program import Program

Shapes = dict[str, list[int]]


@dataclass(frozen=True)
class ComparedArtifact:
    """One profile of an artifact, and all that is known of its making.

    Attributes:
        artifact: its directory.
        shapes: of its inputs in this profile.
        config: of the run that made it; defaults where that is not known. ``model.source`` is the file that it is
            compared with.
        file: that file, in words.
        samples: to judge it on; if empty, random inputs are made.
        sample_source: origin of these samples, in words.
        sha256: of the file that it was made from, shapes fixed; empty where it is not recorded.
        info: the artifact's record of its making.
        run: that made it, where that is known.
    """

    artifact: Path
    shapes: Shapes
    config: Config
    file: str
    samples: tuple[Sample, ...]
    sample_source: str
    sha256: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    run: RecordedRun | None = None

    @property
    def asked(self) -> float | str:
        """The error budget that it was made for, as a number: for a metric the drop in units of the score."""
        largest = self.info.get("accuracy", {}).get("budget")
        return self.config.accuracy.budget if largest is None else float(largest) or EXACT


def subjects(
    place: Path, against: Path | None, data: str | None, trust: bool = False
) -> tuple[ComparedArtifact, ...]:
    """Each profile of the artifact at ``place``, or of the answer of the run there.

    Args:
        place: an artifact, or a run directory.
        against: the user's file, if not the one that the run recorded.
        data: samples, in the format of ``data.source``, instead of those that the run saved.
        trust: use the metric's function, the cache and the links that ``place`` names, whoever wrote them.

    Raises:
        InputError: neither is there, no file to compare it with is known, or it names something that
            this user has not named before.
    """
    is_run = (place / CONFIG).is_file() or ((place / BEST).is_dir() and not is_package(place))
    inside = place if is_run else place.absolute().parent
    directory = home_of(inside)
    of_run = (directory / CONFIG).is_file()
    artifact = place / BEST if inside == place else place
    if not artifact.is_dir():
        raise InputError(f"no artifact at {artifact}: give a .collage directory, or that of a run that ended")
    artifact = select_variant(artifact).directory
    made_by = read_artifact(artifact)
    runs = read_runs(directory) if of_run else ()
    artifacts = []
    for index, profile in enumerate(made_by.profiles):
        shapes = {name: list(profile.program.tensors[name].shape) for name in _static(profile.program)}
        run = runs[index] if index < len(runs) else None
        if run is not None and directory != inside:  # an answer of pick has a result of its own
            run = replace(run, result=result_in(inside) or run.result)
        artifacts.append(_compared(artifact, made_by, shapes, profile.info, run, against, data, trust))
    return tuple(artifacts)


def _compared(
    artifact: Path,
    made_by: Artifact,
    shapes: Shapes,
    info: Mapping[str, Any],
    run: RecordedRun | None,
    against: Path | None,
    data: str | None,
    trust: bool,
) -> ComparedArtifact:
    sha256 = str(info.get(MODEL, {}).get("sha256", ""))
    if against is None and (run is None or not run.original.exists()):
        called = info.get(MODEL, {}).get("name", "")
        raise InputError(
            f"{artifact} is in no run directory that has the model's file: give it with --against FILE.onnx"
            + (f" (it was called {called})" if called else "")
        )
    source, file = (
        (str(against), str(against)) if against else (str(run and run.original), "the file kept in the run")
    )
    base = run.config.model_dump(mode="json", exclude_none=True) if run else {}
    target = {"target.device": made_by.target.device, "target.threads": made_by.target.threads}
    said: dict[str, Any] = {"model.source": source, "fitness.executor": "local", "data.source": data}
    if run is None:
        judged = info.get("accuracy", {})
        said |= {**target, "search.objective": info.get(OBJECTIVE, "latency")}
        said |= {"accuracy.metric": judged.get("metric", ""), "accuracy.over": judged.get("over", "all")}
    config = with_shapes(parse_config({"model": {"source": source}, **base}, said, "compare"), shapes)
    asked = ("accuracy.metric", CACHE)  # the user of this command names the data
    links = links_in(run.directory) if run else ()
    require_noted({*outward(config, artifact, asked), *links}, artifact, trust)
    samples, sample_source = _samples(config, shapes, run)
    if (metric := config.accuracy.metric) and not samples:
        raise InputError(f"{artifact} was made with the metric {metric}: give samples for it with --data")
    sha256 = sha256 or (str(run.result.model["sha256"]) if run else "")
    return ComparedArtifact(artifact, shapes, config, file, samples, sample_source, sha256, info, run)


def _samples(config: Config, shapes: Shapes, run: RecordedRun | None) -> tuple[tuple[Sample, ...], str]:
    """Samples to judge it on: given data, else those that the run saved and its search has not seen."""
    if config.data.source is not None:
        return samples_of_shapes(config, shapes, model_file(config)), f"of {config.data.source}"
    held_out_file = run.directory / "work" / "held_out.npz" if run else None
    if held_out_file is not None and held_out_file.exists() and (samples := read_samples(held_out_file)):
        random = run is not None and run.result.accuracy.random
        return samples, "that the run kept and its search has not seen" + (", random numbers" if random else "")
    return (), "of random numbers"


def _static(program: Program) -> Sequence[str]:
    return [name for name in program.inputs if program.tensors[name].static]
