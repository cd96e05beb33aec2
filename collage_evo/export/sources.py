"""ONNX models from which the pieces of an artifact were compiled, from its run's work directory."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from collage_evo.codec import from_plain
from collage_evo.errors import InputError
from collage_evo.graph.files import read_model
from collage_evo.graph.ir import Graph, members
from collage_evo.graph.outputs import computed_outputs
from collage_evo.graph.read import build_graph
from collage_evo.measure.build.cache import PieceCache
from collage_evo.measure.build.compiler import Compiler
from collage_evo.measure.jobs import REGIONS
from collage_evo.patterns.match import Region
from collage_evo.runtime.artifact import Profile
from collage_evo.target.target import Target

_AGAIN = "run the search again, and export its answer"


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

    @cached_property
    def _graph(self) -> Graph:
        return build_graph(self._read("normalised.onnx"))

    def _read(self, name: str) -> onnx.ModelProto:
        if not (self.work / name).exists():
            raise InputError(f"{self.work / name} is gone, which the answer was compiled from: {_AGAIN}")
        return read_model(self.work / name)
