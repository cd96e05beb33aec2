"""Calibration finds the extremes of every activation over all samples."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.errors import InputError
from collage_evo.files import write_json
from collage_evo.graph.convert.observe import record
from collage_evo.graph.convert.read import build_graph
from collage_evo.hardware.memory import PeakMemory
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.ranges import ENOUGH, calibrate, read_ranges
from collage_evo.precision.quantise.rules import Range
from collage_evo.precision.quantise.scales import (
    Scale,
    activation_scale,
    quantise_bias,
    symmetric_scale,
    weight_scales,
    with_room_for,
)
from tests.precision.nets import conv_relu, net, random_inputs


def test_a_range_holds_every_value_of_every_sample() -> None:
    graph = net(conv_relu)
    samples = [random_inputs(graph, seed) for seed in range(3)]
    values = [record(graph.model, sample, graph.tensors.keys()) for sample in samples]
    activations = {name for node in graph.nodes for name in node.outputs} | set(graph.inputs)
    ranges = calibrate(graph, samples)
    assert ranges.keys() == activations
    for name, found in ranges.items():
        assert found.low == min(float(seen[name].min()) for seen in values)
        assert found.high == max(float(seen[name].max()) for seen in values)


def test_means_are_those_of_the_channels_that_an_operator_with_a_bias_reads() -> None:
    graph = net(conv_relu)
    samples = [random_inputs(graph, seed) for seed in range(3)]
    ranges = calibrate(graph, samples)
    (read,) = graph.inputs
    others = tuple(axis for axis in range(samples[0][read].ndim) if axis != 1)
    expected = np.mean([sample[read].mean(others) for sample in samples], 0)
    np.testing.assert_allclose(ranges[read].means, expected, atol=1e-6)
    assert all(not found.means for name, found in ranges.items() if name != read)


def test_calibration_holds_no_tensor_longer_than_a_run_does() -> None:
    b, width, layers = Builder("chain"), 2_500_000, 40
    x = b.input("x", (1, width))
    for _ in range(layers):
        x = b.op("Neg", x)
    graph = build_graph(b.model(b.op("ReduceMax", x, keepdims=0)))
    calibrate(net(conv_relu), [random_inputs(net(conv_relu), 0)])  # loads ONNX Runtime
    sample = {"x": np.ones((1, width), np.float32)}
    gc.collect()
    peak = PeakMemory()
    ranges = calibrate(graph, [sample])
    assert peak.bytes < 8 * 4 * width
    assert len(ranges) == layers + 2


def test_what_is_not_finite_has_no_range() -> None:
    b = Builder("log")
    graph = build_graph(b.model(b.op("Add", b.op("Log", b.input("x", (3,))), b.const(np.ones(3, np.float32)))))
    ranges = calibrate(graph, [{"x": np.array([1, 2, 3], np.float32)}, {"x": np.array([0, 2, 3], np.float32)}])
    assert ranges.keys() == {"x"}
    assert calibrate(graph, [{"x": np.array([np.nan, 1, 1], np.float32)}]) == {}


def test_a_model_of_integers_has_no_ranges() -> None:
    b = Builder("integers")
    graph = build_graph(b.model(b.op("Equal", b.input("x", (3,), onnx.TensorProto.INT64), b.const(np.arange(3)))))
    assert calibrate(graph, [{"x": np.arange(3)}]) == {}


def test_when_time_is_up_no_further_sample_is_run() -> None:
    graph = net(conv_relu)
    first, second = random_inputs(graph, 0), random_inputs(graph, 1)
    assert calibrate(graph, [first, second], seconds=0) == calibrate(graph, [first])


@pytest.mark.parametrize(("seconds", "count"), [(1e3, 12), (15.0, ENOUGH), (5.0, 6)])
def test_a_slow_model_is_calibrated_on_few_samples(seconds: float, count: int) -> None:
    ran = list[int]()
    graph = net(conv_relu)

    def samples() -> Iterator[dict[str, np.ndarray]]:
        for seed in range(12):
            ran.append(seed)
            yield random_inputs(graph, seed)

    calibrate(graph, samples(), seconds=seconds, clock=partial(next, itertools.count()))
    assert len(ran) == count


def test_without_samples_there_are_no_ranges() -> None:
    with pytest.raises(InputError, match="no samples"):
        calibrate(net(conv_relu), [])


def test_ranges_are_read_as_they_were_written(tmp_path: Path) -> None:
    graph = net(conv_relu)
    ranges = calibrate(graph, [random_inputs(graph, 0)])
    write_json(tmp_path / "ranges.json", dict[str, Range], ranges)
    assert read_ranges(tmp_path / "ranges.json") == ranges
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(InputError, match=r"other\.json"):
        read_ranges(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("scale_of", "least", "greatest", "zero"),
    [
        *((activation_scale, 0, 2.55, np.uint8(0)), (activation_scale, -2.55, 0, np.uint8(255))),
        *((activation_scale, 1, 2.55, np.uint8(0)), (activation_scale, -1.28, 1.27, np.uint8(128))),
        *((symmetric_scale, -1.27, 0.5, np.int8(0)), (symmetric_scale, -0.5, 1.27, np.int8(0))),
        (symmetric_scale, 0, 2.55, np.uint8(0)),
    ],
)
def test_zero_is_in_every_range(
    scale_of: Callable[[float, float], Scale], least: float, greatest: float, zero: np.integer[Any]
) -> None:
    scale = scale_of(least, greatest)
    assert scale.scale == pytest.approx(0.01)
    assert (scale.zero_point, scale.zero_point.dtype) == (zero, zero.dtype)


def test_a_tensor_or_channel_of_zeros_has_a_scale() -> None:
    assert activation_scale(0.0, 0.0).scale == 1
    np.testing.assert_allclose(weight_scales(np.array([[0, 0], [1, -2]], np.float32), 0), [1, 2 / 127])


def test_a_large_bias_over_tiny_weights_stays_in_int32() -> None:
    bias, unit = np.array([5.0, -1.0], np.float32), np.float32(1e-3)
    scales = with_room_for(bias, unit, np.array([1e-30, 1e-2], np.float32))
    integers, units = quantise_bias(bias, unit, scales)
    np.testing.assert_allclose(integers * units, bias, rtol=1e-4)
    assert scales[1] == np.float32(1e-2)
