"""OpenVINO computes as exactly as its variant says, and its models may be freed in any order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage_evo.backends.openvino import OpenVinoBackend
from collage_evo.genome.failure import Failed
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from collage_evo.runtime.session import Session
from collage_evo.testing.cases.case import weight
from tests.backends.pieces import TARGET, compiled, error, outputs, require_right
from tests.support.models import parse_graph

BACKEND = OpenVinoBackend()
pytestmark = pytest.mark.skipif(not BACKEND.probe().available, reason=BACKEND.probe().reason)
CHANNELS = 256


def compressed(how: str) -> onnx.ModelProto:
    """A product by weights that the file keeps in int8, with a scale for each column."""
    rng = np.random.default_rng(0)
    b = Builder("compressed")
    weights = b.const(rng.integers(-128, 128, (CHANNELS, CHANNELS)).astype(np.int8))
    scales = b.const(rng.uniform(0.01, 0.02, CHANNELS).astype(np.float32))
    if how == "Cast":
        full = b.op("Mul", b.op("Cast", weights, to=TensorProto.FLOAT), scales)
    else:
        full = b.op("DequantizeLinear", weights, scales, axis=1)
    return b.model(b.op("MatMul", b.input("x", (1, 32, CHANNELS)), full))


@pytest.mark.parametrize("how", ["Cast", "DequantizeLinear"])
def test_weights_in_int8_do_not_bring_the_other_side_of_a_product_to_int8(how: str, tmp_path: Path) -> None:
    model = compressed(how)
    assert error(model, outputs(BACKEND, model, tmp_path)) < 1e-5


@pytest.mark.parametrize("op_type", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize(
    ("steps", "batch", "direction", "taken"),
    [(3, 1, "forward", True), (1, 2, "reverse", True), (3, 2, "bidirectional", True), (3, 2, "forward", False)],
)
def test_samples_of_a_recurrence_do_not_mix(
    op_type: str, steps: int, batch: int, direction: str, taken: bool, tmp_path: Path
) -> None:
    b, rng = Builder("recurrence"), np.random.default_rng(0)
    count, gates = 1 + (direction == "bidirectional"), {"GRU": 3, "LSTM": 4, "RNN": 1}[op_type]
    weights = (b.const(rng.standard_normal((count, 8 * gates, 8)).astype(np.float32)) for _ in range(2))
    x = b.input("x", (steps, batch, 8))
    model = b.model(*b.ops(op_type, x, *weights, outputs=2, hidden_size=8, direction=direction))
    graph = build_graph(model)
    assert bool(BACKEND.supports_node(graph, graph.nodes[0])) is taken
    if taken:
        assert error(model, outputs(BACKEND, model, tmp_path)) < 1e-5


FREED = """
import signal, sys
from pathlib import Path
from tests.backends.pieces import build, loaded, usable
from collage_evo.testing.cases import CASES

model, backend, folder = CASES["relu_row"](), usable("openvino"), Path(sys.argv[1])
build(backend, model, folder)
pieces = [loaded(backend, model, folder) for _ in range(2)]
while pieces:
    del pieces[0]
signal.signal(signal.SIGINT, lambda *_: print("handled"))
signal.raise_signal(signal.SIGINT)
"""


def test_a_signal_is_handled_when_models_were_freed_first_come_first_gone(tmp_path: Path) -> None:
    """The library handles signals on a stack of its own, which must not go with a model."""
    command = [sys.executable, "-c", FREED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


@pytest.mark.parametrize("multiplied", [False, True])
def test_a_mask_gets_its_rows_and_the_bias_of_a_classifier_does_not(multiplied: bool) -> None:
    b = Builder("attention or classifier")
    keys = b.input("keys", (2, 16, 8)) if multiplied else b.const(weight(16, 8))
    scores = b.op("Add", b.op("MatMul", b.input("x", (2, 8, 16)), keys), b.const(weight(8)))
    softmax = b.op("Softmax", scores, axis=-1)
    result = b.op("MatMul", softmax, b.input("z", (2, 8, 4))) if multiplied else softmax
    model = BACKEND.plain_files().read(b.model(result))
    (added,) = (node for node in model.get_ops() if node.get_type_name() == "Add")
    assert list(added.input_value(1).get_shape()) == ([1, 8, 8] if multiplied else [8])


def test_an_expanded_mask_stays_where_it_makes_the_scores_larger() -> None:
    b = Builder("one query for several masks")
    mask = b.op("Expand", b.input("mask", (1, 1, 8)), b.ints(2, 8, 8))
    scores = b.op("Add", b.op("MatMul", b.input("x", (1, 8, 16)), b.input("y", (1, 16, 8))), mask)
    result = b.op("MatMul", b.op("Softmax", scores, axis=-1), b.input("z", (2, 8, 4)))
    model = BACKEND.plain_files().read(b.model(result))
    model.validate_nodes_and_infer_types()
    (added,) = (node for node in model.get_ops() if node.get_type_name() == "Add")
    assert list(added.get_output_shape(0)) == [2, 8, 8]


SHARED = """
import gc, sys
from pathlib import Path
import numpy as np
from collage_evo.backends.openvino import backend as module
from tests.backends.pieces import borders, build, loaded
from tests.support.models import tiny_branchy

model, backend, folder, random = tiny_branchy(), module.OpenVinoBackend(), Path(sys.argv[1]), np.random.default_rng(0)
build(backend, model, folder)
(whole,), answers, (inputs, outputs) = folder.iterdir(), [], borders(model)
content = whole.read_bytes()
whole.unlink()
x = [random.standard_normal(tensor.shape).astype(np.float32) for tensor in inputs]
for shared_bytes, parts in ((2**26, 20), (0, 20), (2**26, 1), (0, 1)):
    module.SHARED_BYTES, size = shared_bytes, -(-len(content) // parts)
    files = [folder / (whole.name if parts == 1 else f"{whole.name}.{part:05d}") for part in range(parts)]
    for part, file in enumerate(files):
        file.write_bytes(content[part * size : (part + 1) * size])
    made = [np.empty(tensor.shape, tensor.dtype) for tensor in outputs]
    piece = loaded(backend, model, folder)
    assert (piece._shared is None) == (shared_bytes > 0)
    run = piece.bind(x, made)
    del piece
    for file in files:
        with file.open("r+b") as overwritten:
            overwritten.write(b"\\xff" * size)
            overwritten.truncate(1)
    gc.collect()
    large = [np.full(len(content), 255, np.uint8) for _ in range(50)]  # takes memory that was freed too early
    run()
    answers.append(made)
for made in answers:
    for one, other in zip(made, answers[0], strict=True):
        np.testing.assert_array_equal(one, other)
"""


def test_a_blob_runs_in_parts_too_and_its_memory_outlives_its_files(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SHARED, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def guarded_attention(mask: str) -> onnx.ModelProto:
    """Attention as PyTorch exports it, with rows that are NaN after the Softmax set to zero."""
    b, places = Builder("attention"), 128  # so many that the mask is a large constant
    query, key, value = (b.input(name, (1, 2, places, 8)) for name in ("q", "k", "v"))
    scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 1, 3, 2]))
    hidden = np.where(np.tri(places, dtype=bool), 0.0, -np.inf).astype(np.float32)
    if mask == "one row hidden":
        hidden[2] = -np.inf
    if mask == "computed from constants":
        size = b.const(np.array(places, np.int64))
        place = b.op("Range", b.const(np.array(0, np.int64)), size, b.const(np.array(1, np.int64)))
        later = b.op("Less", b.op("Unsqueeze", place, b.const(np.array([1]))), place)
        added = b.op("Where", later, b.const(np.float32(-np.inf)), b.const(np.float32(0)))
        scores = b.op("Add", scores, added)
    elif mask.startswith("an input"):
        scores = b.op("Add", scores, b.input("mask", (places, places)))
        if mask == "an input, scaled":
            scores = b.op("Mul", scores, b.input("scale", (1,)))
        elif mask == "an input and causal":
            scores = b.op("Add", scores, b.const(hidden))
    elif mask == "two":
        scores = b.op("Add", b.op("Add", scores, b.const(hidden)), b.const(hidden[::-1].copy()))
    elif mask == "causal, scaled":
        scores = b.op("Div", b.op("Add", b.op("Mul", scores, b.const(np.float32(0.5))), b.const(hidden)),
                      b.const(np.float32(2)))  # fmt: skip
    elif mask == "causal, negated":
        scores = b.op("Mul", b.op("Add", scores, b.const(hidden)), b.const(np.float32(-1)))
    elif mask != "none":
        scores = b.op("Add", scores, b.const(hidden))
    shares = b.op("Softmax", scores, axis=-1)
    shares = b.op("Where", b.op("IsNaN", shares), b.const(np.float32(0)), shares)
    return b.model(b.op("MatMul", shares, value))


@pytest.mark.parametrize(
    ("mask", "takes"),
    [
        *(("none", True), ("causal", True), ("causal, scaled", True), ("computed from constants", True)),
        *(("one row hidden", False), ("two", False), ("causal, negated", False)),
        *(("an input", False), ("an input, scaled", False), ("an input and causal", False)),
    ],
)
def test_what_replaces_nan_after_a_softmax_is_taken_where_no_row_is_hidden(
    mask: str, takes: bool, tmp_path: Path
) -> None:
    model = guarded_attention(mask)
    if not takes:
        with pytest.raises(Failed, match="Softmax's NaN"):
            compiled(model, "openvino", tmp_path)
        return
    feeds = random_inputs(model, 0)
    with Session([compiled(model, "openvino", tmp_path)], TARGET) as session:
        assert relative_error(session.run(None, feeds), Reference(model).run(feeds)).relative < 1e-5


CHOICE = "v, i = TopK<axis = 1, largest = 1>(x, k)"
IN_A_BODY = """{ i = If(c) <then_branch = one () => (int64[2, 50] p) { v, p = TopK<axis = 1>(x, k) },
    else_branch = other () => (int64[2, 50] q) { n = Neg(x) w, q = TopK<axis = 1, largest = 0>(n, k) }> }"""


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_first_of_equal_values_is_the_largest(axis: int, tmp_path: Path) -> None:
    model = parse_graph(f"g (float[3, 40, 20] x) => (float[3, 40, 20] y) {{ y = Hardmax<axis = {axis}>(x) }}")
    x = np.random.default_rng(0).integers(0, 3, (3, 40, 20)).astype(np.float32)
    require_right(model, "openvino", {"x": x}, tmp_path)


@pytest.mark.parametrize("nodes", [f"{{ {CHOICE} }}", IN_A_BODY])
def test_equal_values_keep_their_order(nodes: str, tmp_path: Path) -> None:
    given = "<int64[1] k = {50}, bool c = {1}>"
    model = parse_graph(f"g (float[2, 400] x) => (int64[2, 50] i) {given} {nodes}")
    for x in (np.zeros((2, 400)), np.random.default_rng(0).integers(0, 3, (2, 400))):
        require_right(model, "openvino", {"x": x.astype(np.float32)}, tmp_path)


@pytest.mark.parametrize("threshold", [0.5, 1.0])
@pytest.mark.parametrize("sizes", ["", "[1]"])
def test_a_box_that_overlaps_just_as_much_as_allowed_stays(threshold: float, sizes: str, tmp_path: Path) -> None:
    given = f"<int64[1] k = {{4}}, float{sizes} o = {{{threshold}}}, float l = {{0.1}}>"
    text = f"g (float[1, 4, 4] b, float[1, 2, 4] s) => (int64[n, 3] i) {given}"
    model = parse_graph(f"{text} {{ i = NonMaxSuppression(b, s, k, o, l) }}")
    boxes = np.array([[[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 2, 2], [0, 0, 2, 4]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.6], [0.5, 0.5, 0.5, 0.5]]], np.float32)
    require_right(model, "openvino", {"b": boxes, "s": scores}, tmp_path)


@pytest.mark.parametrize("in_order", [0, 1])
def test_the_largest_in_an_order_of_the_library_s_own_are_declined(in_order: int) -> None:
    nodes = f"{{ v, i = TopK<axis = 1, sorted = {in_order}>(x, k) }}"
    graph = build_graph(parse_graph(f"g (float[2, 9] x) => (float[2, 3] v) <int64[1] k = {{3}}> {nodes}"))
    assert BACKEND.supports_node(graph, graph.nodes[0]).ok == bool(in_order)
