"""A corrected bias takes the mean of what rounding weights does out of an operator's output."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.bias import corrected_bias, mean_shift
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.rules import Range, corrected_axis, quantisable
from collage_evo.precision.quantise.write import quantisation_key, quantised_region
from tests.precision import nets
from tests.precision.nets import net, ranges_of
from tests.support.numerics import BOTH, INPUTS
from tests.support.typed import not_none

Net = Callable[[Builder], str]
EVERYWHERE = np.ones(())


def shift(graph: Graph, form: Int8Form, means: bool) -> float:
    """Norm of the mean error of each output channel where the input is its mean everywhere."""
    (name,) = graph.inputs
    shape = graph.tensors[name].shape
    axis = not_none(corrected_axis(graph, graph.nodes[0]))
    channels = np.linspace(-1.0, 1.5, shape[axis], dtype=np.float32)
    wide = channels.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    feed = np.broadcast_to(wide, shape).copy()
    seen = {**ranges_of(graph), name: Range(-1.0, 1.5, tuple(channels.tolist()) if means else ())}
    model = quantised_region(graph, graph.all_nodes, quantisable(graph, graph.all_nodes, form), seen, form)
    (found,), (exact,) = reference_outputs(model, {"i0": feed}), reference_outputs(graph.model, {name: feed})
    off = found - exact
    return float(np.linalg.norm(off.mean(tuple(place for place in range(off.ndim) if place != axis))))


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (nets.conv, INPUTS),
        (nets.conv_depthwise, INPUTS),
        (nets.conv_without_bias, INPUTS),
        (nets.gemm, INPUTS),
        (nets.gemm, BOTH),
        (nets.matmul, INPUTS),
        (nets.matmul, BOTH),
    ],
)
def test_the_mean_error_shrinks(make: Net, form: Int8Form) -> None:
    graph = net(make)
    assert shift(graph, form, means=True) < 0.7 * shift(graph, form, means=False)


def test_exact_weights_leave_the_bias_as_it_is() -> None:
    numbers, scales = np.array([[1, -2], [3, 4]], np.int8), np.array([0.5, 0.25], np.float32)
    bias = np.array([1.0, 2.0], np.float32)
    exact = numbers * scales[:, np.newaxis]
    shift = mean_shift(exact, numbers, scales, 0, np.ones(2), EVERYWHERE)
    np.testing.assert_array_equal(corrected_bias(bias, shift), bias)


def test_each_group_has_its_own_means() -> None:
    exact = np.array([0.6, 0.6], np.float32).reshape(2, 1, 1, 1)
    numbers, scales = np.zeros(exact.shape, np.int8), np.ones(2, np.float32)
    shift = mean_shift(exact, numbers, scales, 0, np.array([1.0, -2.0]), EVERYWHERE)
    np.testing.assert_allclose(corrected_bias(None, shift), [0.6, -1.2])


def test_other_means_are_another_piece() -> None:
    graph = net(nets.conv)
    (name,) = graph.inputs
    seen = ranges_of(graph)
    other = {**seen, name: seen[name]._replace(means=tuple(mean + 1.0 for mean in seen[name].means))}
    given = (graph, graph.all_nodes, graph.all_nodes)
    assert len({quantisation_key(*given, ranges, INPUTS) for ranges in (seen, other)}) == 2
