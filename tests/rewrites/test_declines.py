"""Rewrites leave alone what only looks like their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from collage_evo.graph.ir import NodeSet
from collage_evo.graph.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.rewrites.catalogue import rewrite_named


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


def test_a_transposition_that_moves_pixels_is_no_shuffle_of_channels() -> None:
    b = Builder("shuffle")
    y = b.op("Reshape", image(b), b.ints(1, 2, 4, 8, 8))
    y = b.op("Reshape", b.op("Transpose", y, perm=[0, 1, 2, 4, 3]), b.ints(1, 8, 8, 8))
    assert not sites("gathered-channels", b, y)


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
    y = b.op("Conv", b.input("x", (1, 4, 8, 8, 8)), b.input("w", (4, 4, 3, 3, 3)))
    assert not sites("stacked-frames", b, y)
