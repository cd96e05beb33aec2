"""Programs of which the fake device runs some pieces."""

from pathlib import Path

import onnx

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.program import Program

CUDA = Target("cuda", 1)
DEVICE, PLAIN, HOST = ("fakegpu", "default"), ("fakegpu", "plain"), ("onnxruntime", "default")
Engine = tuple[str, str]


def placed(model: onnx.ModelProto, cache: Path, *engines: Engine) -> Program:
    """Each operator of ``model`` as a region of its own, the engines in turn."""
    graph = build_graph(model)
    regions = (Region(1 << i, *engines[i % len(engines)]) for i in range(len(graph.nodes)))
    program = Compiler(CUDA, PieceCache(cache, 2**30)).placement(graph, Placement(tuple(regions)))
    assert not isinstance(program, BuildFailure), program
    return program
