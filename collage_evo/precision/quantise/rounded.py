"""Weights in int8: a constant's integers and scales, and the shift of the mean that rounding causes.

Both are cached with the graph: a search writes the same weights into each of its placements, and an unrolled
recurrence multiplies by them in every step.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from collage_evo.graph.convert.extract import constant_digest
from collage_evo.graph.ir.graph import Graph, GraphCache, Node
from collage_evo.graph.ir.windows import kernel_inside
from collage_evo.hardware.processor import this_machine
from collage_evo.precision.quantise.bias import mean_shift
from collage_evo.precision.quantise.rules import weight_axis
from collage_evo.precision.quantise.scales import (
    largest_pairs,
    largest_two,
    quantise_weights,
    scales_of,
    weight_scales,
)


class RoundedWeights:
    """A constant in int8, symmetric over each channel along ``axis``.

    Attributes:
        scales: float32 [channels].
        numbers: int8 in the shape of the constant.
    """

    def __init__(self, exact: np.ndarray, scales: np.ndarray, axis: int) -> None:
        self.scales, self.numbers, self._axis = scales, quantise_weights(exact, scales, axis), axis
        self._shifts: dict[tuple[tuple[float, ...], bytes], np.ndarray] = {}

    @property
    def values(self) -> np.ndarray:
        """float32 in the shape of the constant: what the integers stand for."""
        shape = [-1 if place == self._axis else 1 for place in range(self.numbers.ndim)]
        return np.asarray(self.numbers * self.scales.reshape(shape))

    @cached_property
    def sums(self) -> np.ndarray:
        """float64 [channels]: each channel's output for an input of ones."""
        others = tuple(place for place in range(self.numbers.ndim) if place != self._axis)
        return np.asarray(self.numbers.sum(others, np.float64) * self.scales)

    def shift(self, graph: Graph, node: Node, means: tuple[float, ...]) -> np.ndarray:
        """:func:`mean_shift` for ``node``, whose weights these are, and whose input has ``means``."""
        inside = kernel_inside(graph, node)
        key = means, inside.tobytes()
        if key not in self._shifts:
            exact = graph.constants[node.inputs[1]]
            self._shifts[key] = mean_shift(exact, self.numbers, self.scales, self._axis, np.array(means), inside)
        return self._shifts[key]


def usual_scales(graph: Graph, node: Node) -> np.ndarray:
    """float32 [output channels]: the default scales of the weights of a heavy ``node``.

    On a processor that saturates they are larger, unless the node is computed without sums of pairs.
    """
    name, axis = node.inputs[1], weight_axis(graph, node)
    assert axis is not None  # of constant weights
    saturates = this_machine().saturates_int8 and not _is_depthwise(graph, node)
    memo, key = _known(graph), (constant_digest(graph, name), axis, node.op_type, saturates)
    if key not in memo:
        weights = graph.constants[name]
        memo[key] = _fitting_scales(node, weights, axis) if saturates else weight_scales(weights, axis)
    scales: np.ndarray = memo[key]
    return scales


def _fitting_scales(node: Node, weights: np.ndarray, axis: int) -> np.ndarray:
    """Scales by which no pair of products exceeds 16 bits."""
    outputs_first = np.moveaxis(weights, axis, 0)
    # The order in which libraries add the products of a transposed convolution is unknown.
    return scales_of((largest_two if node.op_type == "ConvTranspose" else largest_pairs)(outputs_first))


def _is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a convolution with one input and one output channel in each group: libraries widen its
    numbers before they multiply (``tests/precision/test_saturation.py``)."""
    group = node.attributes.get("group", 1)
    return node.op_type == "Conv" and graph.constants[node.inputs[1]].shape[:2] == (group, 1)


def rounded_weights(graph: Graph, name: str, axis: int, scales: np.ndarray) -> RoundedWeights:
    """The constant ``name`` in int8 by ``scales``, float32 [channels]."""
    memo, key = _known(graph), (constant_digest(graph, name), axis, scales.tobytes())
    if key not in memo:
        memo[key] = RoundedWeights(graph.constants[name], scales, axis)
    rounded: RoundedWeights = memo[key]
    return rounded


def share_rounded(graph: Graph, other: Graph) -> None:
    """Share the cached constants of ``graph`` with ``other``, which consists of parts of it."""
    _known.put(other, _known(graph))


@GraphCache
def _known(graph: Graph) -> dict[tuple[Any, ...], Any]:
    """The cache by the constant's content: rewritten pieces of a graph have other names for it."""
    return {}
