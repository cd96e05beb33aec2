"""Every rewrite of the catalogue computes what it replaces, alone and inside larger regions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from collage_evo.rewrites.catalogue import REWRITES, rewrite_named
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.rewrites.write import write_rewrites
from tests.support.rewrites.cases import rewritable_models
from tests.support.rewrites.check import rewrite_problems


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_computes_what_it_replaces(rewrite: Rewrite) -> None:
    @settings(max_examples=15)
    @given(rewritable_models(rewrite.name), st.integers(0, 2**31))
    def check(model: onnx.ModelProto, seed: int) -> None:
        assert list(rewrite_problems(rewrite, model, seed)) == []

    check()


def conv(b: Builder, x: str, op: str, *shape: int, **attributes: Any) -> str:
    """A convolution, transposed or not, by random weights."""
    return b.op(op, x, b.const(np.random.default_rng(0).standard_normal(shape).astype(np.float32)), **attributes)


OLD: dict[str, Callable[[Builder], Sequence[str]]] = {
    "phase-convolutions": lambda b: [conv(b, "x", "ConvTranspose", 4, 2, 3, 3, strides=[2, 2], pads=[1] * 4)],
    "pixel-products": lambda b: [conv(b, b.op("GlobalAveragePool", "x"), "Conv", 3, 4, 1, 1)],
}


@pytest.mark.parametrize("name", OLD)
def test_an_old_operator_set_is_kept(name: str) -> None:
    b = Builder("old")
    b.input("x", (1, 4, 9, 8))
    model = b.model(*OLD[name](b), opset=9)
    assert any(rewrite_named(name).sites(build_graph(model)))
    assert list(rewrite_problems(rewrite_named(name), model)) == []


def test_names_tell_rewrites_apart_and_can_be_part_of_a_variants_name() -> None:
    names = [rewrite.name for rewrite in REWRITES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in names)


def first_layer(b: Builder, index: str, kind: str) -> str:
    """A product of one-hot rows of 4, as files have it, and what is added to it."""
    if kind == "one hot":
        row = b.op("OneHot", index, b.ints(4), b.const(np.array([0.25, 1], np.float32)))
    else:
        apart, numbers = b.op("Unsqueeze", index, b.ints(2)), b.const(np.arange(2, 6, dtype=np.int64))
        row = b.op("Cast", b.op("Equal", numbers, apart), to=TensorProto.FLOAT)
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    return b.op("Add", b.op("MatMul", row, b.const(weights)), b.const(np.arange(3, dtype=np.float32)))


@pytest.mark.parametrize("kind", ["one hot", "compared"])
def test_a_table_has_an_answer_for_indices_that_no_row_is_for(kind: str) -> None:
    b = Builder("table")
    model = b.model(first_layer(b, b.input("x", (1, 12), TensorProto.INT64), kind))
    graph = build_graph(model)
    (site,) = rewrite_named("tabled-indices").sites(graph)
    written = write_rewrites(graph, graph.all_nodes, (("tabled-indices", site),))
    assert "MatMul" not in {node.op_type for node in written.graph.node}
    ends = np.iinfo(np.int64)
    x = np.array([[ends.min, ends.min + 1, -9, -5, -4, -1, 0, 3, 4, 6, 99, ends.max]], np.int64)
    expected, found = Reference(model).run({"x": x}), Reference(written).run({written.graph.input[0].name: x})
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "made", "kernel", "places"),
    [((24, 24), 1, (5, 5), [4, 4]), ((1, 64), 1, (1, 9), [1, 16]), ((24, 24), 8, (3, 9), [1, 2])],
    ids=["an image", "a line", "a long kernel"],
)
def test_places_fill_a_vector(
    sizes: tuple[int, int], made: int, kernel: tuple[int, int], places: Sequence[int]
) -> None:
    b = Builder("places")
    graph = build_graph(b.model(conv(b, b.input("x", (1, 3, *sizes)), "Conv", made, 3, *kernel)))
    (site,) = rewrite_named("places-as-channels").sites(graph)
    written = build_graph(write_rewrites(graph, graph.all_nodes, (("places-as-channels", site),)))
    (one,) = (node for node in written.nodes if node.op_type == "Conv")
    assert (one.attributes["strides"], written.tensors[one.outputs[0]].shape[1]) == (places, 16)


@pytest.mark.parametrize(
    ("rows", "found"),
    [((4, 3), 1), ((2**17, 3), 0)],
    ids=["a small table", "more rows than the index could ever pay for"],
)
def test_only_a_small_table_is_made(rows: tuple[int, int], found: int) -> None:
    b = Builder("table")
    y = b.op("Gather", b.const(np.ones(rows, np.float32)), b.input("x", (1, 8), TensorProto.INT64))
    y = b.op("MatMul", y, b.const(np.ones((3, 2), np.float32)))
    assert len(list(rewrite_named("tabled-indices").sites(build_graph(b.model(y))))) == found


def test_what_joins_rows_ends_a_table() -> None:
    b = Builder("table")
    y = b.op("MatMul", b.op("Gather", b.const(np.ones((5, 3), np.float32)), b.input("x", (1, 5), TensorProto.INT64)),
             b.const(np.ones((3, 5), np.float32)))  # fmt: skip
    y = b.op("Softmax", b.op("Mul", y, b.const(np.ones((5, 1), np.float32))))
    (site,) = rewrite_named("tabled-indices").sites(build_graph(b.model(y)))
    assert site == 0b11


@pytest.mark.parametrize(("rows", "found"), [(16, 1), (17, 0)])
def test_products_of_few_rows_that_do_not_wait_for_each_other_are_joined(rows: int, found: int) -> None:
    b = Builder("steps")
    weights, inner = (
        b.const(np.random.default_rng(seed).standard_normal((4, 4)).astype(np.float32)) for seed in (0, 1)
    )
    own = [b.op("MatMul", b.input(f"x{step}", (1, rows, 4)), weights) for step in range(3)]
    states = [b.op("Tanh", own[0])]
    for y in own[1:]:
        states.append(b.op("Tanh", b.op("Add", y, b.op("MatMul", states[-1], inner))))
    model = b.model(*states)
    rewrite = rewrite_named("joined-products")
    assert [site.bit_count() for site in rewrite.sites(build_graph(model))] == [3] * found
    assert list(rewrite_problems(rewrite, model)) == []


def test_a_product_that_its_activation_reads_twice_has_no_bias_folded_into_it() -> None:
    b, rng = Builder("hard swish"), np.random.default_rng(0)
    y = b.op("MatMul", b.input("x", (1, 20, 4)), b.const(rng.standard_normal((4, 3)).astype(np.float32)))
    above = b.op("Add", y, b.const(np.float32(3)))
    model = b.model(b.op("Mul", y, b.op("Clip", above, b.const(np.float32(0)), b.const(np.float32(6)))))
    rewrite = rewrite_named("convolved-rows")
    assert list(rewrite.sites(build_graph(model))) == [0b1111]
    assert list(rewrite_problems(rewrite, model)) == []
