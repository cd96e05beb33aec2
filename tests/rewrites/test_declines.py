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


@pytest.mark.parametrize(("counted", "found"), [(0, 1), (1, 0)])
def test_a_bias_does_not_pass_a_pool_whose_weights_add_up_to_less_at_the_edges(counted: int, found: int) -> None:
    b = Builder("pool")
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": counted}
    y = b.op("AveragePool", conv(b, image(b), (8, 8, 1, 1), biased=True), **pool)
    assert len(sites("pooled-convolutions", b, y)) == found


@pytest.mark.parametrize(("size", "found"), [(2, 0), (3, 1)])
def test_a_window_that_reaches_over_the_image_counts_what_is_not_there(size: int, found: int) -> None:
    b = Builder("pool")
    pool = {"kernel_shape": [3, 3], "strides": [4, 4], "count_include_pad": 1}
    y = b.op("AveragePool", conv(b, image(b, 8, size), (8, 8, 1, 1), biased=True), **pool)
    assert len(sites("pooled-convolutions", b, y)) == found


def test_a_pool_and_a_convolution_stay_where_the_other_order_is_more_work() -> None:
    b = Builder("pool")
    y = conv(b, b.op("AveragePool", image(b), kernel_shape=[2, 2], strides=[2, 2]), (8, 8, 1, 1))
    assert not sites("pooled-convolutions", b, y)


def test_what_others_read_too_is_not_taken_apart() -> None:
    b = Builder("concat")
    both = b.op("Concat", image(b), b.input("y", (1, 4, 8, 8)), axis=1)
    assert not sites("partial-convolutions", b, conv(b, both, (2, 12, 1, 1)), b.op("Relu", both))


@pytest.mark.parametrize(("scale", "mode", "found"), [(2.0, "floor", 1), (1.5, "floor", 0), (2.0, "ceil", 0)])
def test_only_whole_factors_of_nearest_neighbours_are_repetitions(scale: float, mode: str, found: int) -> None:
    b = Builder("resize")
    scales = b.const(np.array([1, 1, scale, scale], np.float32))
    modes: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": mode}
    y = conv(b, b.op("Resize", image(b), "", scales, mode="nearest", **modes), (2, 8, 3, 3), pads=[1] * 4)
    assert len(sites("resized-convolutions", b, y)) == len(sites("repeated-pixels", b, y)) == found


@pytest.mark.parametrize(("place", "found"), [("half_pixel", 1), ("align_corners", 0)])
def test_only_middles_of_pixels_are_interpolated_by_a_kernel(place: str, found: int) -> None:
    b = Builder("resize")
    scales = b.const(np.array([1, 1, 2, 2], np.float32))
    y = b.op("Resize", image(b), "", scales, mode="linear", coordinate_transformation_mode=place)
    assert len(sites("blended-pixels", b, y)) == found


@pytest.mark.parametrize(("group", "found"), [(1, 0), (2, 1), (8, 0)])
def test_whole_and_depthwise_convolutions_have_no_groups_to_merge(group: int, found: int) -> None:
    b = Builder("groups")
    assert len(sites("merged-groups", b, conv(b, image(b), (8, 8 // group, 3, 3), group=group))) == found


@pytest.mark.parametrize(("made", "found"), [(3, 1), (32, 0)])
def test_phases_are_for_few_channels(made: int, found: int) -> None:
    b = Builder("phases")
    y = conv(b, image(b), (8, made, 4, 4), op="ConvTranspose", strides=[2, 2], pads=[1] * 4)
    assert len(sites("phase-convolutions", b, y)) == found


@pytest.mark.parametrize(
    ("made", "kernel", "found"),
    [(1, (3, 3), 1), (8, (1, 9), 1), (3, (1, 1), 0), (16, (5, 5), 0)],
    ids=["few channels", "a long kernel", "nothing in common", "full vectors"],
)
def test_places_are_made_at_once_where_vectors_are_not_full(made: int, kernel: tuple[int, int], found: int) -> None:
    b = Builder("places")
    y = conv(b, b.input("x", (1, 4, 24, 24)), (made, 4, *kernel))
    assert len(sites("places-as-channels", b, y)) == found


def empty_resize(b: Builder) -> str:
    scales = b.const(np.array([1, 1, 2, 2], np.float32))
    y = b.op("Resize", b.input("x", (0, 8, 8, 8)), "", scales, mode="nearest", nearest_mode="round_prefer_floor")
    return conv(b, y, (2, 8, 3, 3))


@pytest.mark.parametrize(
    ("rewrite", "fill"),
    [
        ("repeated-pixels", empty_resize),
        ("resized-convolutions", empty_resize),
        ("flat-convolutions", lambda b: conv(b, b.input("x", (1, 4, 0)), (2, 4, 3), pads=[2, 2])),
        ("separated-pools", lambda b: b.op("MaxPool", b.input("x", (1, 4, 5, 12)), kernel_shape=[6, 8])),
        ("normalised-rows", lambda b: b.op("InstanceNormalization", b.input("x", (1, 1, 0)), *ones(b, 1, 1))),
        ("pooled-convolutions", lambda b: b.op("AveragePool", conv(b, b.input("x", (1, 4, 3)), (1, 4, 1)),
                                               kernel_shape=[5], pads=[0, 1])),
    ],
)  # fmt: skip
def test_what_has_no_elements_is_left_alone(rewrite: str, fill: Callable[[Builder], str]) -> None:
    b = Builder("empty")
    assert not sites(rewrite, b, fill(b))


@pytest.mark.parametrize(("opset", "found"), [(10, 0), (11, 1)])
@pytest.mark.parametrize(("rewrite", "mode"), [("repeated-pixels", "nearest"), ("blended-pixels", "linear")])
def test_a_resize_of_an_operator_set_without_coordinates_stays(
    rewrite: str, mode: str, opset: int, found: int
) -> None:
    b = Builder("resize")
    scales = b.const(np.array([1, 1, 2, 2], np.float32))
    y = b.op("Resize", image(b), *([""] if opset > 10 else []), scales, mode=mode)
    assert len(list(rewrite_named(rewrite).sites(build_graph(b.model(y, opset=opset))))) == found


@pytest.mark.parametrize(("size", "found"), [(1, 0), (2, 1)])
def test_a_normalisation_of_single_pixels_has_no_rows(size: int, found: int) -> None:
    b = Builder("rows")
    y = b.op("InstanceNormalization", b.input("x", (1, 4, size, 1)), *ones(b, 4, 4))
    assert len(sites("normalised-rows", b, y)) == found


@pytest.mark.parametrize(("domain", "taken"), [("", 4), ("somebodys", 2)])
def test_an_operator_of_another_domain_is_no_activation(domain: str, taken: int) -> None:
    b = Builder("joined")
    x = image(b)
    model = b.model(*(b.op("Relu", conv(b, x, (2, 8, 1, 1))) for _ in range(2)))
    model.graph.node[1].domain = domain
    (site,) = rewrite_named("joined-convolutions").sites(build_graph(model))
    assert site.bit_count() == taken


def test_weights_that_are_computed_are_left_alone() -> None:
    b = Builder("computed")
    y = b.op("Conv", b.input("x", (1, 4, 8)), b.input("w", (4, 4, 3)))
    assert not sites("flat-convolutions", b, y)


def double(b: Builder) -> str:
    w = b.const(np.ones((2, 4, 3)))
    return b.op("Conv", b.input("x", (1, 4, 9), TensorProto.DOUBLE), w)


def transposed(b: Builder, made: int = 2, **attributes: Any) -> str:
    return conv(b, image(b), (8, made, 3, 3), op="ConvTranspose", strides=[2, 2], **attributes)


def volume(b: Builder, depth: int = 3, channels: int = 4, **attributes: Any) -> str:
    return conv(b, b.input("x", (1, 4, 6, 6, 6)), (4, channels, depth, 3, 3), **attributes)


def resized(b: Builder, *scales: float, mode: str = "nearest", **attributes: Any) -> str:
    place = {"coordinate_transformation_mode": "half_pixel", **attributes}
    return b.op("Resize", b.input("x", (1, 4, 3, 3)), "", b.const(np.array(scales, np.float32)), mode=mode, **place)


def twice(b: Builder, **attributes: Any) -> str:
    """A convolution of an image that is made twice as large."""
    return conv(b, resized(b, 1, 1, 2, 2), (2, 4 // attributes.get("group", 1), 3, 3), **attributes)


def largest(b: Builder, **attributes: Any) -> str:
    return b.op("MaxPool", image(b, 4, 12), kernel_shape=[5, 5], **attributes)


def mean(b: Builder, **attributes: Any) -> str:
    """A pool behind a convolution of which it leaves a quarter."""
    y = conv(b, image(b, 8, 9), (8, 8, 1, 1))
    return b.op("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2], **attributes)


def joined(b: Builder, axis: int = 1, group: int = 1, second: str = "") -> str:
    both = b.op("Concat", image(b), second or b.input("y", (1, 8, 8, 8)), axis=axis)
    return conv(b, both, (4, (8 if axis == 2 else 16) // group, 1, 1), group=group)


def beside(b: Builder, one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    x = image(b)
    return [conv(b, x, (2 * how.get("group", 1), 8 // how.get("group", 1), 1, 1), **how) for how in (one, other)]


LOOK_ALIKES: dict[str, tuple[str, Callable[[Builder], str | Sequence[str]]]] = {
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
    "a maximum that rounds up": ("separated-pools", lambda b: largest(b, strides=[2, 2], ceil_mode=1)),
    "a maximum that computes its pads": ("separated-pools", lambda b: largest(b, auto_pad="SAME_UPPER")),
    "a maximum that tells where it was": (
        "separated-pools", lambda b: b.ops("MaxPool", image(b, 4, 12), outputs=2, kernel_shape=[5, 5])),
    "a maximum of 64 bits": (
        "separated-pools",
        lambda b: b.op("MaxPool", b.input("x", (1, 4, 12, 12), TensorProto.DOUBLE), kernel_shape=[5, 5])),
    "channels that are repeated": ("repeated-pixels", lambda b: resized(b, 1, 2, 2, 2)),
    "a factor that is whole by rounding only": ("repeated-pixels", lambda b: resized(b, 1, 1, 2.2, 2.2)),
    "a factor for some axes": (
        "repeated-pixels",
        lambda b: b.op("Resize", image(b), "", b.const(np.array([2, 2], np.float32)), axes=[2, 3], mode="nearest")),
    "interpolation that smooths": ("blended-pixels", lambda b: resized(b, 1, 1, 2, 2, mode="linear", antialias=1)),
    "groups of a large image": ("resized-convolutions", lambda b: twice(b, group=2)),
    "a stride over a large image": ("resized-convolutions", lambda b: twice(b, strides=[2, 2])),
    "pads beyond the kernel": ("resized-convolutions", lambda b: twice(b, pads=[3] * 4)),
    "a large image that leaves": (
        "resized-convolutions", lambda b: [y := resized(b, 1, 1, 2, 2), conv(b, y, (2, 4, 3, 3))]),
    "parts of rows": ("partial-convolutions", lambda b: joined(b, axis=2)),
    "groups of parts": ("partial-convolutions", lambda b: joined(b, group=2)),
    "a part that is constant": (
        "partial-convolutions", lambda b: joined(b, second=b.const(np.ones((1, 8, 8, 8), np.float32)))),
    "a scale that is computed": (
        "normalised-rows",
        lambda b: b.op("InstanceNormalization", image(b), b.op("Tanh", b.input("s", (8,))), *ones(b, 8))),
    "other strides": ("joined-convolutions", lambda b: beside(b, {}, {"strides": [2, 2]})),
    "groups beside each other": ("joined-convolutions", lambda b: beside(b, {"group": 2}, {"group": 2})),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_what_only_looks_like_its_place_stays(name: str) -> None:
    rewrite, fill = LOOK_ALIKES[name]
    b = Builder("alike")
    made = fill(b)
    assert not sites(rewrite, b, *([made] if isinstance(made, str) else made))


@pytest.mark.parametrize(
    "behind",
    [
        lambda b, y, k: b.op("Clip", y, b.const(np.float32(0)), b.const(np.float32(k + 1))),
        lambda b, y, k: b.op("LeakyRelu", y, alpha=0.1 * (k + 1)),
        lambda b, y, k: b.op("Relu" if k else "Tanh", y),
    ],
)
def test_activations_that_differ_stay_behind_the_split(behind: Callable[[Builder, str, int], str]) -> None:
    b = Builder("joined")
    x = image(b)
    ends = [behind(b, conv(b, x, (2, 8, 1, 1)), k) for k in range(2)]
    (site,) = sites("joined-convolutions", b, *ends)
    assert site.bit_count() == 2


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
