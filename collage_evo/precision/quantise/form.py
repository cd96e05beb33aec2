"""The int8 form of a library: which operators its integer kernels take, and how it recognises them in a model.

Each backend passes its own with its variants (``int8.py`` in its package); planning, ranges, scales and bias
correction are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from collage_evo.graph.ir.graph import Graph, Node

if TYPE_CHECKING:
    import onnx

PRODUCTS = frozenset({"Gemm", "MatMul"})
Integers = tuple[str, str, str]
"""A tensor as integers: its name, and those of its scale and its zero point."""


class Layout(NamedTuple):
    """How a convolution reads its integers: behind a Pad by ``pads``, then reshaped to the shape ``column``, of which
    the last axis is 1. Empty where nothing is written."""

    pads: tuple[int, ...] = ()
    column: tuple[int, ...] = ()


@dataclass(frozen=True)
class Int8Form:
    """What a library needs around the operators that it is to run in int8.

    Quantisers stand before the inputs of operators, except before those that are rounded already.

    Attributes:
        name: distinguishes the form in keys of pieces and costs.
        takes: whether the library's integer kernels run a heavy node that can be written in int8.
        calibrated: whether ranges come from calibration; else each run finds its own, and only products take part.
        rounds_results: whether quantisers also stand before every input, and behind every operator or the activation
            that is fused into it, and biases are integers.
        symmetric_products: whether products of two activations read signed numbers without zero points.
        products_from_zero: whether products by constants read numbers as if the least were zero; their biases
            compensate for that.
        layout: how a convolution reads its input, given whether its zero point is other than zero; None: unchanged.
        batch_invariant: whether the result of a row does not depend on the others: no scale is computed from a whole
            tensor at run time.
        product: makes the operator that stands for a product, and has a result in float32, from the integers of both
            sides, the name of the bias (empty: none) and the names of the outputs; None: products stay as they are.
    """

    name: str
    takes: Callable[[Graph, Node], bool]
    calibrated: bool = True
    rounds_results: bool = False
    symmetric_products: bool = False
    products_from_zero: bool = False
    layout: Callable[[Graph, Node, bool], Layout] | None = None
    batch_invariant: bool = True
    product: Callable[[Sequence[Integers], str, Sequence[str]], onnx.NodeProto] | None = None

    def replaces(self, node: Node) -> bool:
        """Whether ``node`` is a product for which another operator stands."""
        return self.product is not None and node.op_type in PRODUCTS
