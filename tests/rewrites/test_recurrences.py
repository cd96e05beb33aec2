"""Recurrent operators are unrolled where they have their defaults, and leave nothing in the loop that need not be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.graph.convert.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.rewrites.catalogue import rewrite_named
from collage_evo.rewrites.recurrences import MOST_STEPS
from tests.support.rewrites.check import rewrite_problems

REWRITE = rewrite_named("unrolled-steps")
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
COMPUTED = "computed"


def recurrence(
    op_type: str = "GRU",
    steps: int = 3,
    inputs: dict[int, np.ndarray | str] | None = None,
    opset: int = 18,
    **how: Any,
) -> onnx.ModelProto:
    """A recurrence of two samples; ``inputs`` gives those beside the weights by position, an array or COMPUTED."""
    b, rng = Builder("recurrence"), np.random.default_rng(0)
    count, rows = 1 + (how.get("direction") == "bidirectional"), 4 * GATES[op_type]
    shapes = {1: (count, rows, 5), 2: (count, rows, 4)}
    given: dict[int, np.ndarray | str] = {at: rng.standard_normal(shape) for at, shape in shapes.items()}
    given |= inputs or {}
    names = [b.input("x", (2, steps, 5) if how.get("layout") else (steps, 2, 5))]
    for place in range(1, max(given) + 1):
        value = given.get(place, "")
        if isinstance(value, str):
            names.append(b.op("Relu", b.input("w", shapes[place])) if value else "")
        else:
            names.append(b.const(value if value.dtype == np.int32 else value.astype(np.float32)))
    return b.model(b.ops(op_type, *names, outputs=1, hidden_size=4, **how)[0], opset=opset)


def taken(model: onnx.ModelProto) -> bool:
    return any(REWRITE.sites(build_graph(model)))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(
    ("op_type", "names"), [("GRU", ["Sigmoid", "Tanh"]), ("LSTM", ["sigmoid", "tanh", "tanh"]), ("RNN", ["Tanh"])]
)
def test_defaults_may_be_written_out(op_type: str, names: list[str], direction: str) -> None:
    model = recurrence(op_type, activations=names * (1 + (direction == "bidirectional")), direction=direction)
    assert taken(model)
    assert list(rewrite_problems(REWRITE, model)) == []


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(recurrence(inputs={4: np.array([2, 3], np.int32)}), id="samples of other lengths"),
        pytest.param(recurrence("LSTM", inputs={7: np.ones((1, 12))}), id="peepholes"),
        pytest.param(recurrence(inputs={1: COMPUTED}), id="weights of the input that are computed"),
        pytest.param(recurrence(inputs={2: COMPUTED}), id="weights of the state that are computed"),
        pytest.param(recurrence(activations=["HardSigmoid", "Tanh"]), id="other activations"),
        pytest.param(recurrence(activation_alpha=[0.5, 0.5]), id="slopes of activations"),
        pytest.param(recurrence(clip=3.0), id="a bound before activations"),
        pytest.param(recurrence("LSTM", input_forget=1), id="gates that are one"),
        pytest.param(recurrence(layout=1), id="samples before steps"),
        pytest.param(recurrence(steps=0), id="no steps"),
    ],
)
def test_other_recurrences_stay(model: onnx.ModelProto) -> None:
    assert not taken(model)


@pytest.mark.parametrize("op_type", MOST_STEPS)
def test_many_steps_stay_a_loop(op_type: str) -> None:
    assert taken(recurrence(op_type, steps=MOST_STEPS[op_type]))
    assert not taken(recurrence(op_type, steps=MOST_STEPS[op_type] + 1))


@pytest.mark.parametrize(("state", "products"), [(0.0, 3 + 4), (1.0, 3 + 5)])
def test_a_step_has_one_product_and_that_of_a_state_of_zeros_is_left_out(state: float, products: int) -> None:
    graph = build_graph(recurrence(steps=5, inputs={5: np.full((1, 2, 4), state)}, linear_before_reset=1))
    assert Counter(proto.op_type for proto in REWRITE.apply(graph, graph.all_nodes).nodes)["Gemm"] == products


@pytest.mark.parametrize("op_type", GATES)
def test_an_old_operator_set_of_recurrences_is_kept(op_type: str) -> None:
    assert not taken(recurrence(op_type, opset=10))
    model = recurrence(op_type, opset=11, direction="reverse")
    assert taken(model)
    assert list(rewrite_problems(REWRITE, model)) == []
