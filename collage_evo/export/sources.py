"""Content of a run's work directory for exports: ONNX models of an artifact's pieces, samples for their check."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import onnx

from collage_evo.codec import from_plain
from collage_evo.errors import CollageError, InputError
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.fitness.jobs import REGIONS, recorded_regions
from collage_evo.fitness.kernels import nodes_of_kernels, nodes_of_whole
from collage_evo.fitness.references import read_references
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.graph.load.files import read_model
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.outputs import computed_outputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Region
from collage_evo.report.places import home_of
from collage_evo.run.profiles import FOLDER
from collage_evo.runtime.artifact import Artifact, Profile, read_artifact
from collage_evo.runtime.package import select_variant
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import Signature
from collage_evo.runtime.trace import Naming

_AGAIN = "run the search again, and export its answer"
MOST = 2
"""Number of samples of each profile."""
_EXACT = 1e-3
"""Relative error of float32 arithmetic between processors."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Sources:
    """Source models of one profile: ``work`` is the work directory of its run, ``whole`` the file there for a
    whole-model piece."""

    profile: Profile
    target: Target
    work: Path
    whole: str = "original.onnx"

    def model(self, index: int) -> onnx.ModelProto:
        """The ONNX model of piece ``index``, exactly as the library received it.

        Raises:
            InputError: files of the run are gone or of another run, or the artifact is of an earlier version.
        """
        piece, info = self.profile.program.pieces[index], self.profile.info
        if REGIONS not in info:
            if "baseline" not in info and "fallback" not in info:
                raise InputError(f"the artifact does not say what it was compiled from: {_AGAIN}")
            return computed_outputs(self._read(self.whole))
        try:
            region = from_plain(info[REGIONS], tuple[Region, ...])[index]
            names = tuple(name for node in members(region.nodes) for name in self._graph.nodes[node].names)
        except (ValueError, TypeError, IndexError):
            names = ()  # of a graph with fewer nodes, or without regions
        if names != piece.nodes:
            raise InputError(f"{self.work} is of another run than the artifact: {_AGAIN}")
        with tempfile.TemporaryDirectory() as nothing:
            compiler = Compiler(self.target, PieceCache(Path(nothing), 0), self.work / "ranges.json")
            return compiler.model(self._graph, region)

    def naming(self, index: int) -> Naming:
        """Tells the nodes of kernels of piece ``index``, for :func:`~collage_evo.runtime.trace.trace_artifact`.

        Raises as :meth:`model`.
        """
        model, info = self.model(index), self.profile.info
        if REGIONS in info:
            region = recorded_regions(info, len(self.profile.program.pieces))[index]
            return partial(nodes_of_kernels, self._graph, region, model)
        return partial(nodes_of_whole, model)

    @cached_property
    def _graph(self) -> Graph:
        return build_graph(self._read("normalised.onnx"))

    def _read(self, name: str) -> onnx.ModelProto:
        if not (self.work / name).exists():
            raise InputError(f"the export needs {self.work / name}, which is missing: {_AGAIN}")
        return read_model(self.work / name)


@dataclass(frozen=True)
class StoredSamples:
    """Inputs and outputs by name; ``tolerance``: relative error (2-norm) allowed on another machine."""

    pairs: tuple[tuple[Arrays, Arrays], ...]
    tolerance: float


def homes_of(run: Path, artifact: Artifact) -> list[Path]:
    """The directory of the run of each profile of ``artifact``, the answer of ``run``."""
    several = home_of(run) / FOLDER
    return [several / str(k) for k in range(len(artifact.profiles))] if several.is_dir() else [several.parent]


def namings_of(place: Path) -> dict[Piece, Naming]:
    """What tells the nodes of kernels, by piece of the artifact at ``place``, if that lies in the directory of its
    run: for others the files for it are not there."""
    directory = select_variant(place).directory
    artifact, named = read_artifact(directory), dict[Piece, Naming]()
    for profile, home in zip(artifact.profiles, homes_of(directory.absolute().parent, artifact), strict=False):
        sources = Sources(profile, artifact.target, home / "work")
        for index, piece in enumerate(profile.program.pieces):
            with contextlib.suppress(InputError):
                named[piece] = sources.naming(index)
    return named


def stored_samples(program: Program, target: Target, signature: Signature, works: Sequence[Path]) -> StoredSamples:
    """Outputs of ``program`` for the first reference inputs of the runs with these work directories.

    The tolerance is the answer's own error on them: another processor may round with as large differences.
    """
    pairs: list[tuple[Arrays, Arrays]] = []
    error = _EXACT
    with Session([program], target, signature) as session:
        for work in works:
            for feeds, expected in read_references(work / "reference.npz")[:MOST]:
                outputs = dict(zip(program.outputs, session.run(None, feeds), strict=True))
                errors = (relative_error(outputs[name], expected[name]).relative for name in program.outputs)
                error = max(error, *errors)
                pairs.append((feeds, outputs))
        pairs += _of_other_shapes(session, program, works[0])
    return StoredSamples(tuple(pairs), error)


def _of_other_shapes(session: Session, program: Program, work: Path) -> list[tuple[Arrays, Arrays]]:
    """For open shapes, a sample whose open sizes are twice those of the run, if the model accepts them."""
    if all(program.tensors[name].static for name in program.inputs):
        return []
    feeds, _ = read_references(work / "reference.npz")[0]
    shapes_declared = {name: program.tensors[name].shape for name in program.inputs}
    shapes = {
        name: [2 * now if size < 0 else now for size, now in zip(shapes_declared[name], value.shape, strict=True)]
        for name, value in feeds.items()
    }
    try:
        of_fallback = work / "dynamic.onnx"  # a run whose answer is open has only one file, which is open
        model = read_model(of_fallback if of_fallback.exists() else work / "original.onnx")
        other = random_inputs(model, 1, shapes)
        return [(other, dict(zip(program.outputs, session.run(None, other), strict=True)))]
    except CollageError:  # the model does not accept these sizes
        return []
