"""Checks reach every branch of a model that some input reaches, and say where they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import UNCHECKED
from collage_evo.backends.registry import get_backend
from collage_evo.config import parse_config
from collage_evo.graph.check.branches import taking_each_branch
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.run.directory import start_run
from tests.support.models import parse_graph
from tests.support.quick import QUICK, nested
from tests.support.runs import run_in


def by_rate(condition: str = "c = Equal(sr, rate)", rate: int = 16000) -> onnx.ModelProto:
    sides = [f"{kind}_branch = {kind} () => (float[1, 4] {kind}_y) {{ {kind}_y = " for kind in ("then", "else")]
    branches = f"{sides[0]}Neg(x) }}, {sides[1]}Exp(x) }}"
    body = f"rate = Constant<value = int64 {{{rate}}}>() {condition} y = If<{branches}>(c)"
    model = parse_graph(f"g (float[1, 4] x, int64 sr) => (float[1, 4] y) {{ {body} }}")
    return onnx.shape_inference.infer_shapes(model)


def test_whole_numbers_are_drawn_from_what_they_are_compared_with() -> None:
    assert {int(random_inputs(by_rate(), seed)["sr"]) for seed in range(60)} == {0, 1, 15999, 16000, 16001}
    assert {int(random_inputs(by_rate(rate=0), seed)["sr"]) for seed in range(60)} == {0, 1}


@pytest.mark.parametrize("first", [0, 16000])
def test_an_input_is_found_that_takes_the_other_branch(first: int) -> None:
    given = [{"x": np.zeros((1, 4), np.float32), "sr": np.array(first)}]
    found, unchecked = taking_each_branch(by_rate(), given, threads=1)
    assert not unchecked
    assert [(feeds["sr"] == 16000) != (first == 16000) for feeds in found] == [True]


def test_a_branch_that_no_input_takes_is_named_and_one_that_none_can_take_is_not() -> None:
    model = by_rate("far = Constant<value_float = 1e9>() sum = ReduceMax<keepdims = 0>(x) c = Greater(sum, far)")
    given = [random_inputs(model, 0)]
    assert taking_each_branch(model, given, threads=1) == ([], (model.graph.node[-1].output[0],))
    settled = by_rate("c = Equal(rate, rate)")
    assert taking_each_branch(settled, [random_inputs(settled, 0)], threads=1) == ([], ())


@pytest.mark.slow
def test_who_was_not_checked_in_a_branch_runs_neither_the_model_nor_the_branches(tmp_path: Path) -> None:
    if not get_backend("openvino").probe().available:
        pytest.skip("OpenVINO is not installed")
    model = by_rate("far = Constant<value_float = 1e9>() sum = ReduceMax<keepdims = 0>(x) c = Greater(sum, far)")
    onnx.save(model, tmp_path / "m.onnx")
    found = searchable(prepare_model(ModelFile(str(tmp_path / "m.onnx")), {}, 1, 1), 1)
    (node,) = (node for node in found.graph.nodes if "If" in {proto.op_type for proto in node.protos})
    assert get_backend("openvino").takes(found.graph, node).reason == UNCHECKED
    assert get_backend("onnxruntime").takes(found.graph, node)
    given = {**QUICK, "backends.use": ["onnxruntime", "openvino"], "model.source": str(tmp_path / "m.onnx")}
    config = parse_config(nested({**given, "cache.dir": str(tmp_path / "cache")}), (), "test")
    result = run_in(tmp_path / "run", start_run(tmp_path / "run", config))
    reasons = {one.name: one.reason for one in result.baselines}
    assert UNCHECKED in reasons["openvino"]
    assert reasons["onnxruntime"] == ""
    assert any("takes both branches" in note for note in result.notes)
