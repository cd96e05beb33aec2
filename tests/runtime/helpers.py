"""Compiled programs of tiny models for the tests of the runtime."""

from pathlib import Path

import onnx

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.fitness.compiler import Compiler, PieceCache
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.session import Program

TARGET = Target("cpu", 1, ())


def alternating(model: onnx.ModelProto, cache: Path, backends: tuple[str, ...]) -> Program:
    """Each operator of ``model`` as a region of its own, the backends in turn."""
    graph = build_graph(model)
    regions = [Region(1 << i, backends[i % len(backends)], "default") for i in range(len(graph.nodes))]
    program = Compiler(TARGET, PieceCache(cache, 2**30)).placement(graph, Placement(tuple(regions)))
    assert not isinstance(program, BuildFailure), program
    return program
