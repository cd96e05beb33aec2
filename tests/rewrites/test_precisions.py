"""What stands in place of a site runs in each precision that a library has, about as wrong as that precision is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.base import Target
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import arithmetic_of
from collage_evo.backends.variants import Arithmetic
from collage_evo.files import write_json
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.fitness.jobs import bare
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.hardware.processor import this_machine
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Match
from collage_evo.precision.quantise.ranges import calibrate, read_ranges
from collage_evo.precision.quantise.rules import Range
from collage_evo.precision.transforms.rewritten import Rewritten
from collage_evo.rewrites.convolved_rows import ConvolvedRows
from collage_evo.rewrites.joined_products import JoinedProducts
from collage_evo.rewrites.pooled_convolutions import PooledConvolutions
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.rewrites.turned_factors import TurnedFactors
from tests.support.numerics import INPUTS

USUAL = {Arithmetic.FLOAT32: (0.0, 1e-5), Arithmetic.BFLOAT16: (1e-4, 0.01), Arithmetic.INT8: (1e-4, 0.03)}
"""Relative errors, from and to."""


def transition() -> Graph:
    """A dense net's: a 1x1 convolution, then an average pool."""
    b = Builder("transition")
    weights = np.random.default_rng(1).standard_normal((32, 64, 1, 1)).astype(np.float32)
    y = b.op("Conv", b.input("x", (1, 64, 8, 8)), b.const(weights))
    return build_graph(b.model(b.op("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2])))


def steps() -> Graph:
    """The inputs' products of an unrolled recurrence."""
    b = Builder("steps")
    weights = b.const(np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32))
    return build_graph(b.model(*(b.op("Gemm", b.input(f"x{step}", (1, 64)), weights) for step in range(4))))


def layers(*widths: int) -> Graph:
    """Products of rows, each with its bias and an activation."""
    b, rng = Builder("layers"), np.random.default_rng(1)
    y = b.input("x", (1, 32, widths[0]))
    for width, made in itertools.pairwise(widths):
        weights = b.const((rng.standard_normal((width, made)) / width**0.5).astype(np.float32))
        y = b.op("Add", b.op("MatMul", y, weights), b.const(rng.standard_normal(made).astype(np.float32)))
        y = b.op("Mul", y, b.op("Sigmoid", y))
    return build_graph(b.model(y))


def heads() -> Graph:
    """Queries times keys that are brought to heads and turned, and scaled."""
    b = Builder("heads")
    keys = b.op("Transpose", b.input("y", (1, 20, 2, 16)), perm=[0, 2, 3, 1])
    keys = b.op("Mul", keys, b.const(np.float32(0.25)))
    return build_graph(b.model(b.op("MatMul", b.input("x", (1, 2, 24, 16)), keys)))


def error(graph: Graph, match: Match, folder: Path) -> float:
    """Of the match, which is the whole graph, as it is compiled."""
    compiler = Compiler(Target(), PieceCache(folder / "cache", 2**30), folder / "ranges")
    piece = compiler.region(graph, bare(match))
    feeds = random_inputs(graph, 0)
    inputs, outputs = ([graph.tensors[name] for name in side] for side in (piece.inputs, piece.outputs))
    found = [np.empty(tensor.shape, tensor.dtype) for tensor in outputs]
    backend = get_backend(match.backend)
    loaded = backend.load(piece.directory, Target(), backend.variant(piece.variant), inputs, outputs)
    loaded.bind([feeds[name] for name in piece.inputs], found)()  # type: ignore[arg-type]
    return relative_error(found, plain(Reference(graph.model).run(feeds))).relative


@pytest.mark.parametrize(
    ("make", "rewrite"),
    [
        pytest.param(transition, PooledConvolutions(), id="a pool goes before its convolution"),
        pytest.param(steps, JoinedProducts(), id="products of steps are joined"),
        pytest.param(lambda: layers(24, 48), ConvolvedRows(), id="rows are convolved"),
        pytest.param(heads, TurnedFactors(), id="keys are turned"),
    ],
)
@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_a_rewrite_stands_in_every_precision(
    library: str, make: Callable[[], Graph], rewrite: Rewrite, tmp_path: Path
) -> None:
    graph = make()
    write_json(
        tmp_path / "ranges", dict[str, Range], calibrate(graph, [random_inputs(graph, seed) for seed in range(3)])
    )
    ranges = read_ranges(tmp_path / "ranges")
    found = enumerate_matches(graph, [get_backend(library)], 1.0, ranges=ranges, rewrites=[rewrite])
    written = [match for match in found.matches if match.rewrites]
    kinds = {arithmetic_of(*match.engine) for match in written}
    assert kinds >= {arithmetic_of(*match.engine) for match in found.matches if match.nodes == graph.all_nodes}
    in_float32 = library == "openvino" and make is heads and this_machine().saturates_int8
    assert kinds >= {Arithmetic.FLOAT32, *(() if in_float32 else (Arithmetic.INT8,))}
    for match in written:
        low, high = USUAL.get(arithmetic_of(*match.engine), (0.0, 0.01))
        assert low <= error(graph, match, tmp_path) <= high, match.engine


def test_a_product_as_a_convolution_is_rounded_and_mended_as_the_product_is() -> None:
    graph = layers(24, 48, 24)
    ranges = dict(calibrate(graph, [random_inputs(graph, seed) for seed in range(3)]))
    for site in ConvolvedRows().sites(graph):
        product = graph.nodes[(site & -site).bit_length() - 1]
        part = Rewritten.of(graph, site, (("convolved-rows", site),), ranges)
        (conv,) = (node for node in part.graph.nodes if node.op_type == "Conv")
        assert part.ranges[conv.inputs[0]] == ranges[product.inputs[0]]
        assert part.ranges[conv.inputs[0]].means, "its bias is corrected by the means of channels"
        assert conv.outputs[0] in part.ranges


def test_integers_are_moved_unless_another_rewrite_undoes_the_moves() -> None:
    graph = layers(24, 48, 24)
    ranges = dict(calibrate(graph, [random_inputs(graph, seed) for seed in range(3)]))
    sites = tuple(("convolved-rows", site) for site in sorted(ConvolvedRows().sites(graph)))
    rewritten = Rewritten.of(graph, graph.all_nodes, sites, ranges)
    found = []
    for wrote in rewritten.wrote:
        able = rewritten.able(Arithmetic.INT8, wrote, INPUTS)
        found.append([node.op_type for node in rewritten.graph.nodes if able >> node.index & 1])
    assert found == [["Reshape", "Transpose", "Conv"], ["Conv"]]
