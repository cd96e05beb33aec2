"""The share of each operator predicts what a model with some of them rounded is off by."""

from __future__ import annotations

import math
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir import weights
from collage_evo.graph.ir.graph import Graph, members, node_set
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference, reference_outputs
from collage_evo.models.bert import bert
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.rules import quantisable
from collage_evo.precision.quantise.write import quantised_region
from collage_evo.precision.transforms import sensitivity, switches
from collage_evo.precision.transforms.catalogue import TRANSFORMS
from collage_evo.precision.transforms.sensitivity import FIRST, UNTRIED, error_sensitivities
from tests.precision.nets import random_inputs, ranges_of, ticking
from tests.support.models import chain, tiny_transformer
from tests.support.numerics import BOTH, INPUTS


@pytest.mark.parametrize("chosen", [0b0001, 0b0101, 0b1010101])
def test_shares_add_up_to_the_error_of_several_operators(chosen: int) -> None:
    graph = build_graph(normalise(chain(4, channels=16)))
    ranges, feeds = ranges_of(graph), random_inputs(graph, 7)
    shares = error_sensitivities(graph, ranges, [feeds])
    model = quantised_region(graph, graph.all_nodes, chosen, ranges, INPUTS)
    measured = relative_error(reference_outputs(model, {"i0": feeds["x"]}), reference_outputs(graph.model, feeds))
    predicted = math.sqrt(sum(shares[Arithmetic.INT8][node] for node in members(chosen)))
    assert predicted == pytest.approx(measured.relative, rel=0.3)


def test_of_labels_the_share_that_differs_is_predicted_however_far_off_they_are() -> None:
    b = Builder("labels")
    weight = np.random.default_rng(1).normal(0, 1, (32, 1000)).astype(np.float32)
    graph = build_graph(normalise(b.model(b.op("ArgMax", b.op("MatMul", b.input("x", (400, 32)), b.const(weight))))))
    feeds = random_inputs(graph, 0)
    (product,) = (node.index for node in graph.nodes if node.op_type == "MatMul")
    share = math.sqrt(error_sensitivities(graph, {}, [feeds])[Arithmetic.BFLOAT16][product])
    flipped = round(share * 1000)
    assert share == pytest.approx(flipped / 1000)
    assert 0 < flipped < 50


def test_who_is_not_run_in_int8_has_no_share_of_its_error() -> None:
    graph = build_graph(normalise(tiny_transformer()))
    shares = error_sensitivities(graph, ranges_of(graph), [random_inputs(graph, 0)])
    in_int8 = {node.index for node in graph.nodes if shares[Arithmetic.INT8][node.index]}
    assert in_int8.issuperset(members(quantisable(graph, graph.all_nodes, BOTH)))
    assert not {graph.nodes[index].op_type for index in in_int8} & {"Softmax", "LayerNormalization", "Transpose"}
    assert shares.estimated == 0


def test_bfloat16_rounds_what_operators_give_and_float16_less() -> None:
    graph = build_graph(normalise(chain(2)))
    shares = error_sensitivities(graph, {}, [random_inputs(graph, 0)])
    assert not any(shares[Arithmetic.INT8])
    for coarse, fine in zip(shares[Arithmetic.BFLOAT16], shares[Arithmetic.FLOAT16], strict=True):
        assert 1e-6 < coarse < 1e-4
        assert fine == pytest.approx(coarse / 64)


def test_who_reads_the_models_input_in_bfloat16_rounds_it() -> None:
    """A picture with a large mean that is taken off first."""
    b = Builder("centred")
    x = b.input("x", (1, 64))
    graph = build_graph(b.model(b.op("Relu", b.op("Sub", x, b.const(np.full(1, 100, np.float32))))))
    feeds = {"x": 100 + np.random.default_rng(0).standard_normal((1, 64), np.float32)}
    first, second = error_sensitivities(graph, {}, [feeds])[Arithmetic.BFLOAT16]
    assert first > 1e-3 > 1e-4 > second


def test_tf32_rounds_what_heavy_operators_multiply_as_finely_as_float16() -> None:
    graph = build_graph(normalise(chain(2)))
    shares = error_sensitivities(graph, {}, [random_inputs(graph, 0)], wanted={Arithmetic.TF32: graph.all_nodes})
    for node in graph.nodes:
        share, fine = (shares[kind][node.index] for kind in (Arithmetic.TF32, Arithmetic.FLOAT16))
        assert share == (fine if node.op_type == "Conv" else 0)
        assert bool(share) == (node.op_type == "Conv")


def test_what_time_does_not_allow_is_estimated_and_said() -> None:
    graph = build_graph(normalise(chain(2)))
    shares = error_sensitivities(graph, ranges_of(graph), [random_inputs(graph, 0)], seconds=-time.monotonic())
    assert shares.estimated == 6
    assert set(shares[Arithmetic.BFLOAT16]) == {Arithmetic.BFLOAT16.roundoff**2}


def test_the_time_of_the_first_runs_is_not_that_of_trials() -> None:
    class Slow(list[Any]):
        def __getitem__(self, place: Any) -> Any:
            late.extend([1e6] if isinstance(place, slice) and not late else [])
            return super().__getitem__(place)

    graph, late, now = build_graph(normalise(chain(2))), list[float](), ticking()
    feeds, clock = Slow([random_inputs(graph, 0)]), lambda: now() + sum(late)
    assert error_sensitivities(graph, ranges_of(graph), feeds, seconds=100, clock=clock).estimated == 0


@pytest.mark.parametrize(("seconds", "batches"), [(math.inf, 2), (1e5, 2), (500.0, 2), (15.0, 1)])
def test_a_heavy_model_has_switches_for_what_is_tried_only(
    monkeypatch: pytest.MonkeyPatch, seconds: float, batches: int
) -> None:
    graph, made = build_graph(normalise(tiny_transformer())), list[int]()
    ranges, feeds = ranges_of(graph), [random_inputs(graph, 0)]
    exact = error_sensitivities(graph, ranges, feeds)

    def counted(model: onnx.ModelProto, threads: int) -> Reference:
        made.append(sum(value.name.startswith("switch ") for value in model.graph.input))
        return Reference(model, threads)

    monkeypatch.setattr(weights, "HEAVY_BYTES", 0)
    monkeypatch.setattr(sensitivity, "HEAVY_FIRST", 4)
    monkeypatch.setattr(switches, "Reference", counted)
    found = error_sensitivities(graph, ranges, feeds, seconds=seconds, clock=ticking(10))
    assert made[0] == 4
    assert len(made) == batches
    if math.isinf(seconds):
        assert found == {arithmetic: pytest.approx(shares) for arithmetic, shares in exact.items()}
        assert found.estimated == 0
    elif batches == 1:
        assert found.estimated > 0


def test_what_is_moved_was_rounded_by_who_made_it() -> None:
    b = Builder("moves")
    made = b.op("Relu", b.input("x", (1, 4, 8)))
    turned = b.op("Transpose", b.op("Reshape", made, b.ints(4, 8)), perm=[1, 0])
    graph = build_graph(b.model(b.op("Concat", turned, turned, axis=0)))
    found = error_sensitivities(graph, {}, [random_inputs(graph, 0)])[Arithmetic.BFLOAT16]
    assert [bool(share) for share in found] == [
        node.op_type == "Relu" for node in graph.nodes
    ]
    b = Builder("moves what comes from outside")
    graph = build_graph(b.model(b.op("Relu", b.op("Transpose", b.input("x", (4, 8)), perm=[1, 0]))))
    assert all(error_sensitivities(graph, {}, [random_inputs(graph, 0)])[Arithmetic.BFLOAT16])


@pytest.mark.parametrize("each", [1, FIRST])
def test_where_time_is_short_some_of_each_group_are_tried_and_the_rest_is_taken_to_be_alike(each: int) -> None:
    graph = build_graph(normalise(chain(40)))
    tried = 3 * each  # convolutions in int8 and bfloat16, Relus in bfloat16
    shares = error_sensitivities(
        graph, ranges_of(graph), [random_inputs(graph, 0)], seconds=tried, clock=ticking()
    )
    assert shares.estimated == 120 - tried
    assert Arithmetic.BFLOAT16.roundoff**2 not in shares[Arithmetic.BFLOAT16]


def test_heavy_operators_are_tried_in_int8_before_they_are_in_bfloat16() -> None:
    graph = build_graph(normalise(chain(40)))
    losing = {one: one.losing(graph, graph.all_nodes, ranges_of(graph)) for one in TRANSFORMS}
    order = sensitivity._in_order(sensitivity._trials(graph, losing), [1.0] * len(graph.nodes))
    groups = Counter(trial.transform.arithmetic for trial in order[: 2 * FIRST + 40] if trial.heavy)
    assert groups == {Arithmetic.INT8: 40, Arithmetic.BFLOAT16: FIRST}


def test_operators_that_take_long_are_tried_first_and_copies_later() -> None:
    graph = build_graph(normalise(chain(40)))
    seconds, expected_ms = 3 * FIRST + 10, [1.0] * len(graph.nodes)
    slow = [node.index for node in graph.nodes if node.op_type == "Conv"][::4]
    for place, node in enumerate(slow):
        expected_ms[node] = 100.0 + place
    feeds, ranges = [random_inputs(graph, 0)], ranges_of(graph)
    exact = error_sensitivities(graph, ranges, feeds)[Arithmetic.INT8]
    found = error_sensitivities(graph, ranges, feeds, 1, seconds, None, expected_ms, ticking())
    assert found.estimated == 120 - seconds
    assert [found[Arithmetic.INT8][node] for node in slow] == [exact[node] for node in slow]


def trials_of_encoder(layers: int) -> tuple[Graph, list[Any]]:
    graph = build_graph(normalise(bert(0, layers=layers, length=8, hidden=16, heads=2, vocabulary=11)))
    (int8,) = (one for one in TRANSFORMS if one.arithmetic is Arithmetic.INT8)
    products = node_set(node.index for node in graph.nodes if node.op_type == "MatMul")
    return graph, sensitivity._in_order(sensitivity._trials(graph, {int8: products}), [1.0] * len(graph.nodes))


def test_an_operator_that_is_not_tried_errs_like_those_of_its_kind_before_and_after_it() -> None:
    graph, trials = trials_of_encoder(12)
    repeated = Counter(trial.kinds[0] for trial in trials)
    assert {trial.kinds[0] for trial in trials[: len(repeated)]} == repeated.keys()
    errors = {trial: math.exp(-trial.kinds[0] - 0.1 * trial.node) for trial in trials}
    tried = {trial: errors[trial] for trial in trials[: 3 * len(repeated)]}
    found = sensitivity._complete(graph, trials, tried)
    assert found.estimated == len(trials) - len(tried) > 10
    for trial in trials:
        assert found[Arithmetic.INT8][trial.node] == pytest.approx(errors[trial])


def test_products_for_queries_keys_and_values_are_of_kinds_of_their_own() -> None:
    graph, trials = trials_of_encoder(6)
    found = set[tuple[str, int]]()
    for trial in trials:
        layer, _, role = graph.nodes[trial.node].name.partition(".attention.")
        if role and layer not in ("layer.0", "layer.5"):
            found.add((role, trial.kinds[0]))
    assert len(found) == len({role for role, _ in found}) == len({kind for _, kind in found}) == 4


def test_the_only_operator_of_its_kind_errs_like_those_of_a_coarser_one() -> None:
    graph, trials = trials_of_encoder(6)
    repeated = Counter(trial.kinds[0] for trial in trials)
    of_kinds = [trial for trial in trials if repeated[trial.kinds[0]] > 1]
    coarse = {trial.kinds[-1] for trial in of_kinds}
    ends = [trial for trial in trials if trial not in of_kinds and trial.kinds[-1] in coarse]
    assert ends
    tried = {trial: 1e-4 * (1 + trial.kinds[-1]) for trial in of_kinds}
    found = sensitivity._complete(graph, trials, tried)[Arithmetic.INT8]
    for end in ends:
        assert found[end.node] == pytest.approx(UNTRIED * 1e-4 * (1 + end.kinds[-1]))


@pytest.mark.parametrize("heavy_bytes", [weights.HEAVY_BYTES, 0])
def test_without_samples_everything_is_estimated(heavy_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build_graph(normalise(chain(2)))
    monkeypatch.setattr(weights, "HEAVY_BYTES", heavy_bytes)
    found = error_sensitivities(graph, ranges_of(graph), [], seconds=9.0, budget=0.02)
    assert found.estimated == 6
    assert set(found[Arithmetic.INT8]) == {0.0, Arithmetic.INT8.roundoff**2}


@pytest.mark.parametrize("count", [1, 2, 3, 24])
def test_copies_are_tried_far_from_each_other(count: int) -> None:
    order = sensitivity._apart(count)
    assert sorted(order) == [*range(count)]
    assert order[:3] == [*dict.fromkeys((count // 2, count - 1, 0))][:3]
    for place in range(3, count):
        gaps = [*pairwise(sorted(order[:place]))]
        left, right = next(gap for gap in gaps if gap[0] < order[place] < gap[1])
        assert right - left == max(after - before for before, after in gaps)
        assert abs(left + right - 2 * order[place]) <= 1


def test_heavy_operators_are_tried_on_all_samples_the_others_on_the_first() -> None:
    graph = build_graph(normalise(chain(2)))
    feeds = [random_inputs(graph, seed) for seed in range(3)]
    each = (error_sensitivities(graph, ranges_of(graph), [sample]) for sample in feeds)
    one, two, three = (found[Arithmetic.BFLOAT16] for found in each)
    shares = error_sensitivities(graph, ranges_of(graph), feeds)[Arithmetic.BFLOAT16]
    for node in graph.nodes:
        of_samples = [share[node.index] for share in (one, two, three)]
        assert shares[node.index] == pytest.approx(np.mean(of_samples) if node.op_type == "Conv" else of_samples[0])


def test_further_samples_take_a_part_of_the_time() -> None:
    graph = build_graph(normalise(chain(2)))
    feeds, ranges = [random_inputs(graph, seed) for seed in range(3)], ranges_of(graph)
    # The six trials of the first sample take half of the time, so there is none for those of the second.
    shares = error_sensitivities(graph, ranges, feeds, seconds=12, clock=ticking())
    assert shares == error_sensitivities(graph, ranges, feeds[:1])


def test_two_samples_tell_that_an_output_of_one_number_is_a_label() -> None:
    b = Builder("one label")
    weight = np.random.default_rng(1).normal(0, 1, (32, 1000)).astype(np.float32)
    scores = b.op("MatMul", b.input("x", (1, 32)), b.const(weight))
    graph = build_graph(normalise(b.model(b.op("Cast", b.op("ArgMax", scores, axis=1), to=TensorProto.FLOAT))))
    feeds = [random_inputs(graph, seed) for seed in range(200)]
    (product,) = (node.index for node in graph.nodes if node.op_type == "MatMul")
    flipped = error_sensitivities(graph, {}, feeds)[Arithmetic.BFLOAT16][product] * len(feeds)
    assert flipped == pytest.approx(round(flipped))
    assert flipped > 0


def test_a_model_of_an_old_version_whose_weights_are_inputs_has_shares_too(tmp_path: Path) -> None:
    text = "g (float[3, 4] x, float[4] w) => (float[3, 4] z) <float[4] w = {1, 2, 3, 4}> { z = Mul(x, w) }"
    old = onnx.parser.parse_model(f'<ir_version: 3, opset_import: ["" : 8]> {text}')
    onnx.save(old, tmp_path / "old.onnx")
    model = ModelFile(str(tmp_path / "old.onnx")).load().original
    assert [value.name for value in model.graph.input] == ["x"]
    graph = build_graph(normalise(model))
    feeds = random_inputs(graph, 0)
    np.testing.assert_array_equal(reference_outputs(model, feeds)[0], reference_outputs(old, feeds)[0])
    assert 0 < error_sensitivities(graph, {}, [feeds])[Arithmetic.BFLOAT16][0] < 1e-4
