"""Compared artifacts: the profiles of an artifact for ``compare``, with what is known of their making."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from collage_evo.accuracy.budget import EXACT
from collage_evo.accuracy.samples import Sample, read_samples
from collage_evo.answer.delivery import MODEL, OBJECTIVE
from collage_evo.config import Config, parse_config
from collage_evo.errors import InputError
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.load.open_shapes import OpenShapes, Shapes
from collage_evo.report.finished import result_in
from collage_evo.report.places import home_of
from collage_evo.run.directory import CONFIG, links_in
from collage_evo.run.profiles import with_shapes
from collage_evo.run.recorded import RecordedRun, read_runs
from collage_evo.run.samples import (
    SHAPES,
    FixedShapes,
    model_file,
    samples_in,
    shapes_of_run,
)
from collage_evo.run.trusted import CACHE, outward, require_noted
from collage_evo.runtime.artifact import Artifact, Profile, read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.package import is_package, select_variant
from collage_evo.runtime.program import Program

Sizes = Callable[[ModelFile], Mapping[str, Any]]
"""Gives the keys of ``model`` for the sizes that the user asks for; none where there are none."""


@dataclass(frozen=True)
class ComparedArtifact:
    """One profile of an artifact, and all that is known of its making.

    Attributes:
        artifact: its directory.
        shapes: of its inputs in this profile, or those that its open inputs are compared at.
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
    shapes: Shapes | OpenShapes
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
    place: Path, against: Path | None, data: str | None, trust: bool = False, sizes: Sizes = lambda file: {}
) -> tuple[ComparedArtifact, ...]:
    """Each profile of the artifact at ``place``, or of the answer of the run there; one with open inputs for each of
    the fixed shapes in ``sizes``.

    Args:
        place: an artifact, or a run directory.
        against: the user's file, if not the one that the run recorded.
        data: samples, in the format of ``data.source``, instead of those that the run saved.
        trust: use the metric's function, the cache and the links that ``place`` names, whoever wrote them.
        sizes: of open inputs; by default those of ``data``, or those that the run was made for.

    Raises:
        InputError: neither is there, no file to compare it with is known, or it names something that
            this user has not named before; or no sizes of its open inputs are known, or it has none.
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
    runs = read_runs(directory)[: len(made_by.profiles)] if of_run else ()
    if directory != inside:  # an answer of pick has a result of its own
        runs = tuple(replace(run, result=result_in(inside) or run.result) for run in runs)
    return tuple(
        compared
        for profile, run in zip_longest(made_by.profiles, runs)
        for compared in _compared(artifact, made_by, profile, run, against, data, trust, sizes)
    )


def _compared(
    artifact: Path,
    made_by: Artifact,
    profile: Profile,
    run: RecordedRun | None,
    against: Path | None,
    data: str | None,
    trust: bool,
    sizes: Sizes,
) -> Iterator[ComparedArtifact]:
    info = profile.info
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
    config = parse_config({"model": {"source": source}, **base}, said, "compare")
    asked = ("accuracy.metric", CACHE)  # the user of this command names the data
    links = links_in(run.directory) if run else ()
    require_noted({*outward(config, artifact, asked), *links}, artifact, trust)
    sha256 = sha256 or (str(run.result.model["sha256"]) if run else "")
    keys = sizes(model_file(config))
    for shapes in _shapes(artifact, profile.program, config, keys, run):
        shaped = with_shapes(config, {} if isinstance(shapes, OpenShapes) else shapes)
        samples, sample_source = _samples(shaped, shapes, None if keys else run)
        if (metric := config.accuracy.metric) and not samples:
            raise InputError(f"{artifact} was made with the metric {metric}: give samples for it with --data")
        yield ComparedArtifact(artifact, shapes, shaped, file, samples, sample_source, sha256, info, run)


def _shapes(
    artifact: Path, program: Program, config: Config, keys: Mapping[str, Any], run: RecordedRun | None
) -> Sequence[Shapes | OpenShapes]:
    """The shapes to compare ``program`` at: its own; of open inputs those of ``keys``, of the data, or of the run."""
    if all(min(program.tensors[name].shape, default=0) >= 0 for name in program.inputs):
        if keys:
            raise InputError(f"{artifact} has fixed shapes: leave out --shapes")
        return [{name: list(program.tensors[name].shape) for name in program.inputs if program.tensors[name].static}]
    if keys or config.data.source is not None:
        found, _ = shapes_of_run(config.replacing("model", **keys), model_file(config))
        return found.profiles if isinstance(found, FixedShapes) else [found]
    recorded = run.store.get(SHAPES) if run else None
    if not isinstance(recorded, OpenShapes):
        raise InputError(f"{artifact} takes inputs of many sizes: give samples with --data, or sizes with --shapes")
    return [recorded]


def _samples(
    config: Config, shapes: Shapes | OpenShapes, run: RecordedRun | None
) -> tuple[tuple[Sample, ...], str]:
    """Samples to judge it on: given data, else those that the run saved and its search has not seen."""
    if config.data.source is not None:
        return samples_in(config, shapes, model_file(config)), f"of {config.data.source}"
    held_out_file = run.directory / "work" / "held_out.npz" if run else None
    if held_out_file is not None and held_out_file.exists() and (samples := read_samples(held_out_file)):
        random = run is not None and run.result.accuracy.random
        return samples, "that the run kept and its search has not seen" + (", random numbers" if random else "")
    return (), "of random numbers"
