"""Compiled programs of tiny models for the tests of the runtime."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from collage_evo.backends.base import Target
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.program import Program
from tests.support.models import tiny_convnet

TARGET = Target("cpu", 1, ())
CONVNET = tiny_convnet()


def image(seed: int) -> dict[str, np.ndarray]:
    """Feeds of ``CONVNET``."""
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype(np.float32)}


def expected(seed: int) -> np.ndarray:
    """What ``CONVNET`` gives for ``image(seed)``."""
    return reference_outputs(CONVNET, image(seed), 1)[0]


def assert_expected(found: np.ndarray, seed: int) -> None:
    np.testing.assert_allclose(found, expected(seed), rtol=1e-5, atol=1e-6)


def alternating(model: onnx.ModelProto, cache: Path, backends: tuple[str, ...]) -> Program:
    """Each operator of ``model`` as a region of its own, the backends in turn."""
    graph = build_graph(model)
    regions = [Region(1 << i, backends[i % len(backends)], "default") for i in range(len(graph.nodes))]
    return Compiler(TARGET, PieceCache(cache, 2**30)).placement(graph, Placement(tuple(regions)))


def whole(model: onnx.ModelProto, cache: Path, backend: str = "onnxruntime") -> Program:
    """``model`` as it is, its open shapes included, as one piece of ``backend``."""
    return Compiler(TARGET, PieceCache(cache, 2**30)).whole(model, backend, "default")


def sums(rows: int | str, width: int | str = 4) -> onnx.ModelProto:
    """``x`` float [rows, width] and ``k`` int64 [1] to ``y`` = relu(x) * k, with metadata of its own."""
    net = Builder("sums")
    x, k = net.input("x", (rows, width)), net.input("k", (1,), onnx.TensorProto.INT64)
    y = net.op("Mul", net.op("Relu", x), net.op("Cast", k, to=onnx.TensorProto.FLOAT), output="y")
    model = net.model(y)
    model.producer_name, model.domain, model.model_version = "a test", "org.example", 7
    onnx.helper.set_model_props(model, {"character": "a\nb"})
    return model


def in_a_row(programs: Sequence[Program]) -> Program:
    """One program of the pieces of ``programs``, each of which reads what those before it make."""
    tensors = {name: tensor for program in programs for name, tensor in program.tensors.items()}
    pieces = tuple(piece for program in programs for piece in program.pieces)
    return Program(pieces, programs[0].inputs, programs[-1].outputs, tensors)
