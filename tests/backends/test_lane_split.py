"""Portions of a region, computed one by one and put together, give what the region gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part
from collage_evo.backends.lanes.split import MOST_EXTRA, refusal, split
from collage_evo.errors import InputError
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.read import build_graph
from collage_evo.models.builder import Builder
from tests.support.plan_runner import run, run_plan
from tests.support.random_chains import RandomChain


def require_equal(model: onnx.ModelProto, lanes: int, kind: str, most_extra: float = MOST_EXTRA) -> LanePlan:
    plan, models = split(build_graph(model), lanes, kind, most_extra)
    inputs = random_inputs(model, 0)
    expected, found = run(model, inputs), run_plan(plan, models, inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * np.abs(array).max())
    return plan


@pytest.mark.parametrize("lanes", [2, 3])
def test_rows_of_random_chains(lanes: int) -> None:
    reasons = []
    for seed in range(100):
        model = RandomChain(np.random.default_rng([lanes, seed])).model(6)
        try:
            require_equal(model, lanes, "rows", most_extra=float("inf"))
        except InputError as error:
            reasons.append(str(error))
    known = ("rows for", "lies in its padding", "is padding", "counts its padding", "outside its input", "no input")
    assert all(any(text in reason for text in (*known, "beyond its input")) for reason in reasons), reasons
    assert len(reasons) < 30


def copies(plan: LanePlan) -> int:
    return sum(isinstance(step, Copy) for step in plan.steps)


@pytest.mark.parametrize("lanes", [2, 3])
def test_samples_of_random_chains_need_no_copies(lanes: int) -> None:
    for seed in range(20):
        model = RandomChain(np.random.default_rng([lanes, seed]), batches=(3, 4)).model(5)
        assert not copies(require_equal(model, lanes, "samples", most_extra=float("inf")))


def test_a_stretch_of_rows_of_one_image_is_copied_in_and_out() -> None:
    net = Net([1, 4, 40, 6])
    plan = require_equal(net.model(net.conv(net.conv("x", 4, 3), 4, 3)), 2, "rows")
    made = [(step.lane, step.start, step.stop, step.join) for step in plan.steps if isinstance(step, Copy)]
    assert made == [(0, 0, 22, False), (0, 0, 20, True), (1, 18, 40, False), (1, 20, 40, True)]


class Net(Builder):
    """A small net with one input ``x``."""

    def __init__(self, shape: list[int]) -> None:
        super().__init__("net")
        self.random = np.random.default_rng(0)
        self.shape = shape
        self.input("x", shape)

    def weights(self, *shape: int) -> str:
        return self.const(self.random.standard_normal(shape).astype(np.float32) / 4)

    def conv(self, x: str, channels: int, kernel: int, read: int = 4, group: int = 1) -> str:
        weights = self.weights(channels, read // group, kernel, kernel)
        return self.op("Conv", x, weights, self.weights(channels), group=group, pads=[kernel // 2] * 4)

    def linear(self, x: str, read: int, made: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weights(read, made)), self.weights(made))

    def attention(self, length: int, hidden: int, heads: int) -> str:
        def projected(order: list[int]) -> str:
            parted = self.op(
                "Reshape", self.linear("x", hidden, hidden), self.ints(1, length, heads, hidden // heads)
            )
            return self.op("Transpose", parted, perm=order)

        scores = self.op("MatMul", projected([0, 2, 1, 3]), projected([0, 2, 3, 1]))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), projected([0, 2, 1, 3]))
        return self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints(1, length, hidden))

    def feed_forward(self, hidden: int) -> str:
        wide = self.op("Tanh", self.linear("x", hidden, 4 * hidden))
        summed = self.op("Add", self.linear(wide, 4 * hidden, hidden), "x")
        return self.op("LayerNormalization", summed, self.weights(hidden), self.weights(hidden), axis=-1)


def test_channels_of_one_image_need_no_copies_and_the_depthwise_chain_behind_goes_with_them() -> None:
    net = Net([1, 4, 6, 6])
    x = net.op("Relu", net.conv("x", 8, 1))
    plan = require_equal(net.model(net.conv(x, 8, 3, read=8, group=8)), 2, "channels")
    assert not copies(plan)
    assert all(step.inputs == ("x",) for step in plan.steps if isinstance(step, Part))


def test_groups_of_channels_are_cut_between_groups() -> None:
    for channels, groups in ((8, 2), (8, 4), (12, 4)):
        net = Net([1, 8, 6, 6])
        require_equal(net.model(net.conv("x", channels, 3, read=8, group=groups)), 2, "channels")


def test_attention_is_cut_by_heads_with_the_columns_of_its_projections() -> None:
    net = Net([1, 6, 16])
    plan = require_equal(net.model(net.attention(6, 16, 4)), 2, "columns")
    assert all(step.inputs == ("x",) for step in plan.steps if isinstance(step, Part))


def test_attention_by_heads_is_cut_between_heads_only() -> None:
    net = Net([1, 6, 15])
    model = net.model(net.attention(6, 15, 3))
    with pytest.raises(InputError, match="ends inside an element"):
        split(build_graph(model), 2, "columns")


def test_a_feed_forward_block_is_cut_by_positions_without_copies() -> None:
    net = Net([1, 7, 8])
    assert not copies(require_equal(net.model(net.feed_forward(8)), 2, "positions"))


def test_keys_and_values_of_all_positions_are_work_of_every_lane() -> None:
    net = Net([1, 12, 16])
    model = net.model(net.attention(12, 16, 4))
    require_equal(model, 2, "positions", most_extra=float("inf"))
    assert "longer than an equal share" in refusal(build_graph(model), build_graph(model).all_nodes, 2, "positions")


def test_a_product_is_cut_by_rows_and_by_columns_whichever_way_its_operands_are_turned() -> None:
    cases: tuple[dict[str, int], ...] = ({}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1})
    for turned in cases:
        net = Net([6, 8] if "transA" not in turned else [8, 6])
        weights = net.weights(10, 8) if "transB" in turned else net.weights(8, 10)
        model = net.model(net.op("Gemm", "x", weights, net.weights(10), **turned))
        for kind in ("samples", "columns"):
            require_equal(model, 2, kind)


REFUSED: dict[str, tuple[list[int], str, Callable[[Net], str], str]] = {
    "halo": ([1, 4, 8, 8], "rows", lambda net: net.conv(net.conv("x", 4, 5), 4, 5), "longer than an equal share"),
    "all rows at once": ([1, 4, 8, 8], "rows", lambda net: net.op("Softmax", "x", axis=2), "mixes what lies along"),
    "channels together": ([1, 4, 8, 8], "channels", lambda net: net.op("LRN", "x", size=3), "mixes what lies along"),
    "a part of a group": (
        [1, 9, 8, 8],
        "channels",
        lambda net: net.conv("x", 9, 3, read=9, group=3),
        "ends inside a group",
    ),
    "a row's own elements": (
        [4, 8, 6],
        "columns",
        lambda net: net.op("LayerNormalization", "x", net.weights(6), axis=-1),
        "mixes what lies along",
    ),
    "means of a batch in training": (
        [4, 4, 8],
        "samples",
        lambda net: net.ops(
            "BatchNormalization", "x", *(net.weights(4) for _ in range(4)), outputs=3, training_mode=1
        )[0],
        "counts running means",
    ),
    "smoothed": (
        [1, 4, 8, 8],
        "rows",
        lambda net: net.op(
            "Resize", "x", "", net.const(np.array([1, 1, 2, 2], np.float32)), mode="linear", antialias=1
        ),
        "not resized by a whole factor",
    ),
    "no rows": ([4, 8], "rows", lambda net: net.op("Relu", "x"), "has no rows"),
    "one row": ([1, 4, 1, 8], "rows", lambda net: net.op("Relu", "x"), "1 rows for 2 lanes"),
    "one sample": ([1, 4, 8, 8], "samples", lambda net: net.op("Relu", "x"), "1 samples for 2 lanes"),
    "means of the batch": (
        [4, 4, 8, 8],
        "samples",
        lambda net: net.op("Mul", "x", net.op("ReduceMean", "x", net.ints(0))),
        "longer than an equal share",
    ),
    "unknown": ([4, 8], "samples", lambda net: net.op("CumSum", "x", net.const(np.array(1, np.int64))), "is not cut"),
}


def test_operators_that_were_other_ones_in_older_or_are_in_newer_opsets_are_refused() -> None:
    net = Net([4, 8, 6])
    old = build_graph(net.model(net.op("Softmax", "x", axis=2), opset=11))
    assert "an opset before 13" in refusal(old, old.all_nodes, 2, "channels")
    net = Net([4, 8, 6])
    scales, zeros = net.const(np.ones((4, 4, 6), np.float32)), net.const(np.zeros((4, 4, 6), np.uint8))
    new = build_graph(net.model(net.op("QuantizeLinear", "x", scales, zeros, axis=1, block_size=2), opset=21))
    assert "scales of blocks" in refusal(new, new.all_nodes, 2, "samples")


def test_operators_with_bodies_are_refused_also_where_each_lane_would_need_all_they_make() -> None:
    net = Net([1, 8, 6])
    there = helper.make_tensor_value_info("there", TensorProto.FLOAT, [6, 4])
    body = helper.make_graph([helper.make_node("Identity", [net.weights(6, 4)], ["there"])], "body", [], [there])
    chosen = net.op("If", net.op("Greater", net.op("ReduceMax", "x", keepdims=0), net.const(np.float32(0))),
                    then_branch=body, else_branch=body)  # fmt: skip
    graph = build_graph(net.model(net.op("MatMul", "x", chosen)))
    assert "operators with bodies" in refusal(graph, graph.all_nodes, 2, "positions")


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_cut_or_cannot_pay_is_refused_with_the_reason(case: str) -> None:
    shape, kind, made, reason = REFUSED[case]
    net = Net(shape)
    graph = build_graph(net.model(made(net)))
    assert reason in refusal(graph, graph.all_nodes, 2, kind)
    with pytest.raises(InputError, match=reason):
        split(graph, 2, kind)
