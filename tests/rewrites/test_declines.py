"""Rewrites leave alone what only looks like their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import NodeSet
from collage_evo.models.builder import Builder
from collage_evo.rewrites.catalogue import rewrite_named
from tests.support.rewrites.check import rewrite_problems


def sites(rewrite: str, b: Builder, *outputs: str) -> list[NodeSet]:
    return list(rewrite_named(rewrite).sites(build_graph(b.model(*outputs))))


def conv(b: Builder, x: str, shape: Sequence[int], biased: bool = False, op: str = "Conv", **attributes: Any) -> str:
    weights = [b.const(np.ones(shape, np.float32))] + ([b.const(np.ones(shape[0], np.float32))] if biased else [])
    return b.op(op, x, *weights, **attributes)


def ones(b: Builder, *sizes: int) -> list[str]:
    return [b.const(np.ones(size, np.float32)) for size in sizes]


def image(b: Builder, channels: int = 8, size: int = 8) -> str:
    return b.input("x", (1, channels, size, size))


def double(b: Builder) -> str:
    w = b.const(np.ones((2, 4, 3)))
    return b.op("Conv", b.input("x", (1, 4, 9), TensorProto.DOUBLE), w)


def transposed(b: Builder, made: int = 2, size: int = 3, **attributes: Any) -> str:
    return conv(b, image(b), (8, made, size, size), op="ConvTranspose", strides=[2, 2], **attributes)


def volume(b: Builder, depth: int = 3, channels: int = 4, **attributes: Any) -> str:
    return conv(b, b.input("x", (1, 4, 6, 6, 6)), (4, channels, depth, 3, 3), **attributes)


def mean(b: Builder, **attributes: Any) -> str:
    """A pool behind a convolution of which it leaves a quarter."""
    y = conv(b, image(b, 8, 9), (8, 8, 1, 1))
    return b.op("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2], **attributes)


def pooled(b: Builder, size: int = 8, **pool: Any) -> str:
    """A 1x1 convolution with a bias, and a pool of 3x3 behind it."""
    y = conv(b, image(b, 8, size), (8, 8, 1, 1), biased=True)
    return b.op("AveragePool", y, kernel_shape=[3, 3], **pool)


def few(b: Builder, made: int, *kernel: int) -> str:
    return conv(b, b.input("x", (1, 4, 24, 24)), (made, 4, *kernel))


PLACES: dict[str, tuple[str, Callable[[Builder], str]]] = {
    "a bias and pads that do not count": (
        "pooled-convolutions", lambda b: pooled(b, strides=[2, 2], pads=[1] * 4, count_include_pad=0)),
    "a window inside the image": (
        "pooled-convolutions", lambda b: pooled(b, size=3, strides=[4, 4], count_include_pad=1)),
    "some groups": ("merged-groups", lambda b: conv(b, image(b), (8, 4, 3, 3), group=2)),
    "phases to few channels": ("phase-convolutions", lambda b: transposed(b, made=3, size=4, pads=[1] * 4)),
    "few channels": ("places-as-channels", lambda b: few(b, 1, 3, 3)),
    "a long kernel": ("places-as-channels", lambda b: few(b, 8, 1, 9)),
}  # fmt: skip
LOOK_ALIKES: dict[str, tuple[str, Callable[[Builder], str]]] = {
    "a bias and pads that count": (
        "pooled-convolutions", lambda b: pooled(b, strides=[2, 2], pads=[1] * 4, count_include_pad=1)),
    "a window that reaches over the image": (
        "pooled-convolutions", lambda b: pooled(b, size=2, strides=[4, 4], count_include_pad=1)),
    "a pool whose other order is more work": (
        "pooled-convolutions",
        lambda b: conv(b, b.op("AveragePool", image(b), kernel_shape=[2, 2], strides=[2, 2]), (8, 8, 1, 1))),
    "a pool of no elements": (
        "pooled-convolutions",
        lambda b: b.op("AveragePool", conv(b, b.input("x", (1, 4, 3)), (1, 4, 1)), kernel_shape=[5], pads=[0, 1])),
    "one group": ("merged-groups", lambda b: conv(b, image(b), (8, 8, 3, 3))),
    "a group for each channel": ("merged-groups", lambda b: conv(b, image(b), (8, 1, 3, 3), group=8)),
    "phases to many channels": ("phase-convolutions", lambda b: transposed(b, made=32, size=4, pads=[1] * 4)),
    "places without inputs in common": ("places-as-channels", lambda b: few(b, 3, 1, 1)),
    "places that fill vectors": ("places-as-channels", lambda b: few(b, 16, 5, 5)),
    "a line of no elements": (
        "flat-convolutions", lambda b: conv(b, b.input("x", (1, 4, 0)), (2, 4, 3), pads=[2, 2])),
    "weights that are computed": (
        "flat-convolutions", lambda b: b.op("Conv", b.input("x", (1, 4, 8)), b.input("w", (4, 4, 3)))),
    "pads that the convolution computes": (
        "flat-convolutions", lambda b: conv(b, b.input("x", (1, 4, 9)), (2, 4, 3), auto_pad="SAME_UPPER")),
    "64 bits": ("flat-convolutions", double),
    "frames that are passed over": (
        "flat-convolutions", lambda b: volume(b, depth=1, strides=[2, 1, 1])),
    "a size that is given": ("phase-convolutions", lambda b: transposed(b, output_shape=[16, 16])),
    "groups of phases": ("phase-convolutions", lambda b: transposed(b, group=2)),
    "taps apart": ("phase-convolutions", lambda b: transposed(b, dilations=[2, 2])),
    "places beyond all taps": (
        "phase-convolutions",
        lambda b: conv(b, image(b), (8, 2, 2, 2), op="ConvTranspose", strides=[2, 2], output_padding=[1, 1])),
    "places of groups": ("places-as-channels", lambda b: conv(b, image(b), (2, 4, 3, 3), group=2)),
    "places apart": ("places-as-channels", lambda b: conv(b, image(b), (1, 8, 3, 3), dilations=[2, 2])),
    "groups of a pixel": (
        "pixel-products", lambda b: conv(b, image(b, 8, 1), (8, 4, 1, 1), group=2)),
    "a pixel with pads": ("pixel-products", lambda b: conv(b, image(b, 8, 1), (8, 8, 1, 1), pads=[1] * 4)),
    "a pool that rounds up": ("pooled-convolutions", lambda b: mean(b, ceil_mode=1)),
    "a pool that computes its pads": ("pooled-convolutions", lambda b: mean(b, auto_pad="SAME_UPPER")),
}  # fmt: skip


@pytest.mark.parametrize("name", [*PLACES, *LOOK_ALIKES])
def test_what_only_looks_like_a_place_stays(name: str) -> None:
    rewrite, fill = (PLACES | LOOK_ALIKES)[name]
    b = Builder(rewrite)
    assert len(sites(rewrite, b, fill(b))) == (name in PLACES)


@pytest.mark.parametrize(("size", "axis", "found"), [(32, -1, 1), (31, -1, 0), (32, 1, 0)])
def test_only_large_parts_with_one_element_each_are_interleaved(size: int, axis: int, found: int) -> None:
    b = Builder("planes")
    planes = [b.input(name, (1, size, 32, 1)) for name in "xy"]
    assert len(sites("interleaved-parts", b, b.op("Concat", *planes, axis=axis))) == found


@pytest.mark.parametrize("axes", [(3,), (1, 3)])
@pytest.mark.parametrize(("last", "taken"), [(2, 3), (1, 1)])
def test_a_slice_of_the_joined_axis_is_not_taken_with_it(last: int, taken: int, axes: tuple[int, ...]) -> None:
    b = Builder("planes")
    y = b.op("Concat", *(b.input(name, (1, 32, 32, 1)) for name in "xy"), axis=3)
    y = b.op("Slice", y, b.ints(*[0] * len(axes)), b.ints(*[9, last][-len(axes) :]), b.ints(*axes))
    model = b.model(b.op("Transpose", y, perm=[0, 3, 1, 2]))
    (site,) = rewrite_named("interleaved-parts").sites(build_graph(model))
    assert site.bit_count() == taken
    assert list(rewrite_problems(rewrite_named("interleaved-parts"), model)) == []


@pytest.mark.parametrize(("kinds", "found"), [(4096, 1), (4097, 0)])
@pytest.mark.parametrize("op_type", ["Equal", "OneHot"])
def test_one_hot_rows_of_a_large_vocabulary_are_not_written_out(op_type: str, kinds: int, found: int) -> None:
    b = Builder("vocabulary")
    index = b.input("x", (1, 200), TensorProto.INT64)
    if op_type == "Equal":
        row = b.op("Equal", b.op("Unsqueeze", index, b.ints(2)), b.const(np.arange(kinds, dtype=np.int64)))
        row = b.op("Cast", row, to=TensorProto.FLOAT)
    else:
        row = b.op("OneHot", index, b.ints(kinds), b.const(np.array([0, 1], np.float32)))
    assert len(sites("tabled-indices", b, b.op("MatMul", row, b.const(np.ones((kinds, 2), np.float32))))) == found


@pytest.mark.parametrize(
    ("rows", "behind", "taken"),
    [
        (16, "", []),
        (17, "", [0b11]),
        (17, "read twice", [0b11]),
        (17, "by rows", [0b11]),
        (17, "by numbers", [0b1111]),
    ],
    ids=["few rows", "with its bias", "two tensors would leave", "what goes by rows stays", "what goes by numbers"],
)
def test_a_product_takes_its_bias_along_and_what_goes_by_the_numbers_of_a_row(
    rows: int, behind: str, taken: list[NodeSet]
) -> None:
    b, rng = Builder("rows"), np.random.default_rng(0)
    weights = b.const(rng.standard_normal((4, 3)).astype(np.float32))
    y = b.op("Add", b.op("MatMul", b.input("x", (1, rows, 4)), weights), *ones(b, 3))
    ends = [b.op("Relu", y), y] if behind == "read twice" else [y]
    if behind.startswith("by"):
        sizes = (rows, 1) if behind == "by rows" else (1, 3)
        ends = [b.op("Tanh", b.op("Mul", y, b.const(rng.standard_normal(sizes).astype(np.float32))))]
    assert sites("convolved-rows", b, *ends) == taken


@pytest.mark.parametrize(
    ("perm", "side", "read", "found"),
    [
        ((0, 2, 3, 1), 1, "once", 1),
        ((0, 2, 1, 3), 1, "once", 0),
        ((0, 1, 3, 2), 1, "once", 0),
        ((0, 2, 3, 1), 0, "once", 0),
        ((0, 2, 3, 1), 1, "twice", 0),
    ],
    ids=["brought to heads and turned", "to heads only", "turned only", "the first factor", "others read it too"],
)
def test_a_transpose_stays_that_does_not_turn_what_one_product_reads_last(
    perm: Sequence[int], side: int, read: str, found: int
) -> None:
    b = Builder("heads")
    turned = b.op("Transpose", b.input("x", (1, 2, 2, 2)), perm=perm)
    factors = [b.input("y", (1, 2, 2, 2)), turned]
    y = b.op("MatMul", *(factors if side else factors[::-1]))
    assert len(sites("turned-factors", b, y, *([turned] if read == "twice" else []))) == found
