"""Each operator's portions along each axis that it is cut along give what the operator gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from collage_evo.backends.lanes.spans import AXES
from collage_evo.backends.lanes.split import refusal
from collage_evo.graph.read import build_graph
from tests.backends.test_lane_split import Net, require_equal

Made = Callable[[Net], str]
IMAGE, TOKENS = [2, 4, 8, 6], [2, 8, 6]


def vector(net: Net, size: int) -> str:
    return net.const(net.random.uniform(0.5, 1, size).astype(np.float32))


def ones(net: Net, *shape: int) -> str:
    return net.weights(*shape)


def quantised(net: Net) -> str:
    scale, zero = net.const(np.float32(0.05)), net.const(np.uint8(128))
    return net.op("DequantizeLinear", net.op("QuantizeLinear", "x", scale, zero), scale, zero)


def quantised_channels(net: Net) -> str:
    scale, zero = vector(net, 4), net.const(np.full(4, 3, np.uint8))
    return net.op("DequantizeLinear", net.op("QuantizeLinear", "x", scale, zero, axis=1), scale, zero, axis=1)


def resized(mode: str, coordinates: str, nearest: str = "round_prefer_floor", sizes: bool = False) -> Made:
    def made(net: Net) -> str:
        scales = "" if sizes else net.const(np.array([1, 1, 2, 3], np.float32))
        told = [net.ints(2, 4, 16, 18)] if sizes else []
        form = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
        return net.op("Resize", "x", "", scales, *told, **form)

    return made


CASES: dict[str, tuple[list[int], str, Made]] = {
    "clip": (IMAGE, "samples channels rows", lambda net: net.op("Clip", "x", net.const(np.float32(0)))),
    "prelu": (IMAGE, "samples channels rows", lambda net: net.op("PRelu", "x", ones(net, 4, 1, 1))),
    "where": (
        IMAGE,
        "samples channels rows",
        lambda net: net.op("Where", net.op("Greater", "x", ones(net, 8, 1)), "x", ones(net, 4, 1, 1)),
    ),
    "batch normalisation": (
        IMAGE,
        "samples channels rows",
        lambda net: net.op("BatchNormalization", "x", *(vector(net, 4) for _ in range(4))),
    ),
    "instance normalisation": (
        IMAGE,
        "samples channels",
        lambda net: net.op("InstanceNormalization", "x", vector(net, 4), vector(net, 4)),
    ),
    "local response": (IMAGE, "samples rows", lambda net: net.op("LRN", "x", size=3)),
    "global pool": (IMAGE, "samples channels", lambda net: net.op("GlobalAveragePool", "x")),
    "means of pixels": (
        IMAGE,
        "samples channels",
        lambda net: net.op("ReduceMean", "x", net.ints(2, 3), keepdims=0),
    ),
    "means of channels": (IMAGE, "samples rows", lambda net: net.op("ReduceMean", "x", net.ints(1))),
    "softmax of channels": (IMAGE, "samples rows columns", lambda net: net.op("Softmax", "x", axis=1)),
    "layer normalisation": (
        TOKENS,
        "samples channels",
        lambda net: net.op("LayerNormalization", "x", vector(net, 6), vector(net, 6), axis=-1),
    ),
    "concat": (
        IMAGE,
        "samples channels rows",
        lambda net: net.op("Concat", net.op("Relu", "x"), net.op("Tanh", "x"), "x", axis=1),
    ),
    "concat of rows": (
        IMAGE,
        "samples channels rows",
        lambda net: net.op("Concat", net.op("Relu", "x"), "x", axis=2),
    ),
    "split": (
        IMAGE,
        "samples rows",
        lambda net: net.op("Mul", *net.ops("Split", "x", outputs=2, axis=1, num_outputs=2)),
    ),
    "slice": (
        IMAGE,
        "samples rows columns",
        lambda net: net.op("Slice", "x", net.ints(1), net.ints(3), net.ints(1)),
    ),
    "pad": (IMAGE, "samples channels rows", lambda net: net.op("Pad", "x", net.ints(0, 1, 2, 0, 0, 0, 1, 3))),
    "reflected": (
        IMAGE,
        "samples channels rows",
        lambda net: net.op("Pad", "x", net.ints(0, 0, 0, 1, 0, 0, 0, 1), mode="reflect"),
    ),
    "transpose": (IMAGE, "samples channels rows", lambda net: net.op("Transpose", "x", perm=[0, 2, 3, 1])),
    "shuffled channels": (
        IMAGE,
        "samples rows",
        lambda net: net.op(
            "Reshape",
            net.op("Transpose", net.op("Reshape", "x", net.ints(2, 2, 2, 8, 6)), perm=[0, 2, 1, 3, 4]),
            net.ints(*IMAGE),
        ),
    ),
    "joined axes": (IMAGE, "samples", lambda net: net.op("Reshape", "x", net.ints(2, 4, -1))),
    "flatten": (IMAGE, "samples channels", lambda net: net.op("Flatten", "x")),
    "squeeze": (
        [2, 4, 1, 6],
        "samples channels rows",
        lambda net: net.op("Squeeze", "x", net.ints(2)),
    ),
    "unsqueeze": (IMAGE, "samples channels rows", lambda net: net.op("Unsqueeze", "x", net.ints(4))),
    "batched product": (
        IMAGE,
        "samples channels positions columns",
        lambda net: net.op("MatMul", "x", ones(net, 4, 6, 4)),
    ),
    "product of both": (
        IMAGE,
        "samples channels positions columns",
        lambda net: net.op("MatMul", "x", net.op("Transpose", net.op("Relu", "x"), perm=[0, 1, 3, 2])),
    ),
    "transposed convolution": (
        IMAGE,
        "samples channels rows",
        lambda net: net.op("ConvTranspose", "x", ones(net, 4, 6, 3, 2), vector(net, 6), strides=[2, 1]),
    ),
    "space to depth": (IMAGE, "samples rows", lambda net: net.op("SpaceToDepth", "x", blocksize=2)),
    "depth to space": (IMAGE, "samples rows", lambda net: net.op("DepthToSpace", "x", blocksize=2)),
    "one scale": (
        IMAGE,
        "samples channels rows",
        quantised,
    ),
    "a scale a channel": (IMAGE, "samples channels rows", quantised_channels),
    "nearest": (IMAGE, "samples channels rows columns", resized("nearest", "half_pixel")),
    "nearest, sizes": (IMAGE, "samples channels rows columns", resized("nearest", "asymmetric", "floor", sizes=True)),
    "nearest, up": (IMAGE, "samples channels rows columns", resized("nearest", "half_pixel", "ceil")),
    "linear": (IMAGE, "samples channels rows columns", resized("linear", "half_pixel")),
    "linear, sizes": (IMAGE, "samples channels rows columns", resized("linear", "asymmetric", sizes=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_portions_of_an_operator_give_what_it_gives(case: str) -> None:
    shape, kinds, made = CASES[case]
    net = Net(shape)
    model = net.model(net.op("Abs", made(net)))
    for kind in kinds.split():
        require_equal(model, 2, kind, most_extra=float("inf"))


@pytest.mark.parametrize("case", ["local response", "softmax of channels", "slice", "split"])
def test_an_operator_is_not_cut_along_the_axis_that_it_works_on(case: str) -> None:
    shape, kinds, made = CASES[case]
    net = Net(shape)
    graph = build_graph(net.model(made(net)))
    assert "channels" not in kinds
    assert "mixes" in refusal(graph, graph.all_nodes, 2, "channels")


def test_every_kind_of_split_has_a_case() -> None:
    assert {kind for _, kinds, _ in CASES.values() for kind in kinds.split()} == set(AXES)
