"""Run directories as far as exporting reads them: an answer made by hand, and the files that it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

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
from collage_evo.models.weights import normal
from collage_evo.patterns.match import Placement, Region
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.ranges import calibrate
from collage_evo.precision.quantise.rules import Range
from collage_evo.precision.transforms.edits import numerics_of
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import in_a_row, whole
from tests.support.models import TinyNet, parse_graph

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
    program: Program,
    model: onnx.ModelProto,
    info: Mapping[str, Any],
    fallback: Program | None = None,
) -> None:
    write_artifact(folder / "best.collage", [Profile(program, info)], TARGET, signature_of(model), fallback)


POSITIONS = 64
"""The most tokens that ``encoder`` takes."""


HIDDEN = 16


def _embedded(net: TinyNet, output: str = "") -> str:
    """Of each token of int64 ``ids`` [b, t] its vector, and that of its place."""
    ids = net.input("ids", ("b", "t"), onnx.TensorProto.INT64)
    zero, one = (net.const(np.array(number, np.int64)) for number in (0, 1))
    places = net.op("Range", zero, net.op("Gather", net.op("Shape", ids), one), one)
    tables = [net.const(normal(net.rng, (rows, HIDDEN), 1.0)) for rows in (30, POSITIONS)]
    rows = [net.op("Gather", table, given) for table, given in zip(tables, (ids, places), strict=True)]
    return net.op("Add", *rows, output=output)


def _attended(net: TinyNet, x: str) -> str:
    net.rng = np.random.default_rng(1)
    query, key, value = (net.linear(x, HIDDEN, HIDDEN) for _ in range(3))
    scores = net.op("MatMul", query, net.op("Transpose", key, perm=[0, 2, 1]))
    return net.op("Add", net.op("MatMul", net.op("Softmax", scores, axis=-1), value), x, output="y")


def encoder() -> onnx.ModelProto:
    """int64 ``ids`` [b, t] to ``y`` [b, t, HIDDEN]."""
    net = TinyNet("encoder", 0)
    return net.model(_attended(net, _embedded(net)))


def halves() -> list[onnx.ModelProto]:
    """The same as two models, of which the second reads what the first makes."""
    first, second = TinyNet("first", 0), TinyNet("second", 0)
    embedded = first.model(_embedded(first, "x"))
    return [embedded, second.model(_attended(second, second.input("x", ("b", "t", HIDDEN))))]


def of_tokens(shapes: Iterable[tuple[int, int]]) -> list[dict[str, np.ndarray]]:
    """Feeds of ``encoder`` of these shapes."""
    rng = np.random.default_rng(0)
    return [{"ids": rng.integers(0, 30, shape)} for shape in shapes]


def open_answer(folder: Path, pieces: Sequence[onnx.ModelProto]) -> Path:
    """A run whose answer is ``encoder`` with open shapes in ONNX Runtime, as these pieces one after the other."""
    return _open(folder, encoder(), pieces, of_tokens([(1, 9), (1, 20)]))


def open_sum(folder: Path) -> Path:
    """A run whose answer adds float32 ``x`` and ``z``, both [rows, 3], to ``y``."""
    model = parse_graph("g (float[rows, 3] x, float[rows, 3] z) => (float[rows, 3] y) { y = Add(x, z) }")
    return _open(folder, model, [model], [dict.fromkeys("xz", np.ones((rows, 3), np.float32)) for rows in (2, 5)])


def _open(
    folder: Path, model: onnx.ModelProto, pieces: Sequence[onnx.ModelProto], samples: Sequence[dict[str, np.ndarray]]
) -> Path:
    (folder / "work").mkdir(parents=True)
    onnx.save(model, folder / "work" / "original.onnx")
    pairs = [(feeds, {"y": reference_outputs(model, feeds)[0]}) for feeds in samples]
    write_references(folder / "work" / "reference.npz", pairs)
    program = in_a_row([whole(piece, folder / "cache") for piece in pieces])
    _write(folder, program, model, {"baseline": "onnxruntime"})
    return folder
