"""Run directories as far as exporting reads them: an answer made by hand, and the files that it was made from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from collage_evo.backends.base import BuildFailure
from collage_evo.backends.registry import get_backend
from collage_evo.files import write_json
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.fitness.jobs import REGIONS, regions_of
from collage_evo.fitness.references import write_references
from collage_evo.graph.convert.origin import name_nodes
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import node_set
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.processor import level
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Placement, Region
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.ranges import calibrate
from collage_evo.precision.quantise.rules import Range
from collage_evo.precision.transforms.edits import numerics_of
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import signature_of

TARGET = Target()


def gives_the_same(said: str) -> bool:
    """Whether each line of a check says that outputs are equal to the bit.

    Where this processor is held to less than it has, exported files, which know nothing of it, use all of it: their
    outputs may differ by rounding.
    """
    lines = [line for line in said.splitlines() if "outputs " in line]
    errors = [float(found) for line in lines for found in re.findall("outputs relative error ([^;]+)", line)]
    equal = sum("outputs equal to the bit" in line for line in lines)
    return bool(lines) and equal + len(errors) == len(lines) and all(bool(level()) and one < 2e-6 for one in errors)


def usable(*names: str) -> list[str]:
    """Those of these backends that work here."""
    return [name for name in names if get_backend(name).probe().available]


def of_a_float_index() -> onnx.ModelProto:
    """Rows of a table at floats that become its indices, with their sign changed."""
    text = "g (float[1, 3] i) => (float[1, 3, 2] y) <float[5, 2] w = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}>"
    body = "{ k = Cast<to = 7>(i) e = Gather(w, k) y = Neg(e) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text} {body}')
    return onnx.shape_inference.infer_shapes(model)


def placed(
    folder: Path, model: onnx.ModelProto, engines: Sequence[tuple[str, str]], low: Arithmetic | None = None
) -> Path:
    """A run whose answer gives each engine an equal share of the nodes; heavy ones in ``low``, if asked for."""
    normalised = normalise(model)
    name_nodes(model, normalised)
    graph = build_graph(normalised)
    feeds = _work(folder, model)
    onnx.save(normalised, folder / "work" / "normalised.onnx")
    ranges = folder / "work" / "ranges.json"
    if low is Arithmetic.INT8:
        write_json(ranges, dict[str, Range], calibrate(graph, [feeds]))
    able = ("Gemm", "MatMul", *(("Conv",) if low is Arithmetic.INT8 else ()))
    heavy = node_set(n.index for n in graph.nodes if low and n.op_type in able)
    nodes = [node_set(map(int, part)) for part in np.array_split(range(len(graph.nodes)), len(engines))]
    regions = [
        Region(part, *engine, edits=numerics_of((low, part & heavy)) if low else ())
        for part, engine in zip(nodes, engines, strict=True)
    ]
    placement = Placement(tuple(regions))
    program = Compiler(TARGET, PieceCache(folder / "cache", 10**9), ranges).placement(graph, placement)
    _write(folder, program, model, {REGIONS: regions_of(placement)})
    return folder


def alone(folder: Path, model: onnx.ModelProto, backend: str, variant: str = "default") -> Path:
    """A run whose answer is one backend on the person's own file."""
    _work(folder, model)
    program = Compiler(TARGET, PieceCache(folder / "cache", 10**9)).whole(model, backend, variant)
    _write(folder, program, model, {"baseline": backend})
    return folder


def with_fallback(
    folder: Path, fixed: onnx.ModelProto, model: onnx.ModelProto, backend: str = "onnxruntime"
) -> Path:
    """A run for the shapes of ``fixed`` in ``backend``, whose artifact takes any other that ``model`` does."""
    _work(folder, fixed)
    onnx.save(model, folder / "work" / "dynamic.onnx")
    compiler = Compiler(TARGET, PieceCache(folder / "cache", 10**9))
    first, other = compiler.whole(fixed, backend, "default"), compiler.whole(model, "onnxruntime", "default")
    assert isinstance(other, Program)
    _write(folder, first, model, {"baseline": backend}, other)
    return folder


def _work(folder: Path, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    (folder / "work").mkdir(parents=True)
    onnx.save(model, folder / "work" / "original.onnx")
    feeds = random_inputs(model, 0)
    expected = dict(zip([value.name for value in model.graph.output], reference_outputs(model, feeds), strict=True))
    write_references(folder / "work" / "reference.npz", [(feeds, expected)])
    return feeds


def _write(
    folder: Path,
    program: Program | BuildFailure,
    model: onnx.ModelProto,
    info: Mapping[str, Any],
    fallback: Program | None = None,
) -> None:
    assert isinstance(program, Program), program
    write_artifact(folder / "best.collage", [Profile(program, info)], TARGET, signature_of(model), fallback)
