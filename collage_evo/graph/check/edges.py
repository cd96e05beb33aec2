"""Edge-case inputs of a model: ties, equal rows, large and tiny numbers, truth values all alike.

Random inputs hardly ever hold these, and libraries differ on them: on which of equal values is the largest, on whole
numbers that no float32 holds, on exponentials of large numbers and quotients of tiny ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from collage_evo.errors import InputError
from collage_evo.graph.convert.static import STANDARD
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.graph.ir.values import Values
from collage_evo.graph.ir.weights import graphs_of
from collage_evo.graph.load.inputs import index_bound, random_inputs
from collage_evo.graph.load.shapes import dynamic_inputs, open_axes
from collage_evo.graph.reference.noise import differing
from collage_evo.graph.reference.reference import Reference
from collage_evo.graph.reference.rounding import Moved

STRONG = 30.0
"""Factor of floats: exponentials of some results leave float32's range, others nearly do."""
TINY, EACH = 1e-20, 7
"""The value of one float in each group of ``EACH``: float32 does not hold its square in full precision."""
LARGE = (2**24 + 1, -(2**24) - 3, 2**30 + 7, 1, -(2**30) - 5, 3)
"""Whole numbers of 31 bits and a sign; float32 holds all up to 24 bits."""
DECIDED = 2.5e-5
"""An output that one rounding moves further than this depends on rounding, so it proves nothing about a library."""
MOST_WEIGHTS, MOST_MOVED = 2**24, 2**26
"""Models with more weights have no such samples, and no noise of choices: the check of rounding took 18 s for the 88
million of ViT-B/32, 3 s for 8 million (Xeon, a busy core)."""
_FIRST_ONLY = {"Reshape", "Squeeze", "Unsqueeze", "Slice", "Expand", "Tile", "ReduceSum", "ReduceMax", "ReduceMin"}
_DIVIDED = {"Div", "Mod"}
_CHOOSING = {"ArgMax", "ArgMin", "Hardmax", "NonMaxSuppression", "NonZero", "TopK", "Unique"}
_WHOLE_NUMBERS = {
    *("Add", "Sub", "Mul", "Neg", "Abs", "Sign", "Max", "Min", "Sum", "Where", "Clip", "Relu", "Identity", "Concat"),
    *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Transpose", "Flatten", "Cast"),
}
"""Operators that take any whole number as any of their inputs."""


def edge_samples(model: onnx.ModelProto, sample: Values, reference: Reference) -> list[tuple[Values, Values]]:
    """At most two edge-case variants of ``sample``, each with the outputs of ``model``.

    Excludes samples that ONNX Runtime without optimisations does not take, or for which it returns a number that is
    not finite. A model with more than ``MOST_WEIGHTS`` gets none.

    Args:
        model: with its inputs' shapes fixed.
        sample: inputs that it runs on.
        reference: the model, loaded.
    """
    if _weights(model) > MOST_WEIGHTS:
        return []
    samples: list[tuple[Values, Values]] = []
    for feeds in (alike := _alike(model, sample), _far(model, sample)):
        if not _differs(feeds, sample):
            continue
        try:
            expected = reference.run_named(feeds)
            if feeds is alike and _sums(model) and not _ties_survive(model, feeds, expected):
                continue
        except InputError:  # the model takes no such inputs
            continue
        if all(map(_finite, expected.values())):
            samples.append((feeds, expected))
    return samples


def chooses(model: onnx.ModelProto) -> bool:
    """Whether an operator of ``model``, also in its bodies and functions, chooses among computed numbers.

    False for more than ``MOST_MOVED`` weights, for which looking at what rounding decides takes too long.
    """
    if _weights(model) > MOST_MOVED:
        return False
    return any(node.op_type in _CHOOSING for graph in graphs_of(model) for node in graph.node)


def other_shapes(model: onnx.ModelProto, sample: Values, timeout_s: float) -> list[tuple[Values, Values]]:
    """Random and edge-case inputs of a model with open shapes, each open size one more than in ``sample``, or twice
    as large where the model takes no such sizes; with the outputs. Empty where it takes neither.

    Args:
        model: as the file declares it.
        sample: inputs that it runs on.
        timeout_s: limit of one run in seconds.
    """
    if _weights(model) > MOST_WEIGHTS:
        return []
    reference = Reference(model, timeout_s=timeout_s)
    for added, factor in ((1, 1), (0, 2)):
        shapes = {value.name: list(np.shape(sample[value.name])) for value in dynamic_inputs(model)}
        for value in dynamic_inputs(model):
            for axis in open_axes(value):
                shapes[value.name][axis] = factor * shapes[value.name][axis] + added
        try:
            feeds = random_inputs(model, seed=4000, shapes=shapes)
            expected = reference.run_named(feeds)
        except InputError:
            continue
        samples = [(feeds, expected), *edge_samples(model, feeds, reference)]
        return decided(samples, lambda: Moved(model, 1, timeout_s))
    return []


def decided(samples: Sequence[tuple[Values, Values]], moving: Callable[[], Moved]) -> list[tuple[Values, Values]]:
    """The ``samples`` in which rounding decides nothing; ``moving`` makes the model that shows it."""
    try:
        noises = [moving().noise(*pair).values() for pair in samples]
    except InputError:  # the model cannot be written in that form
        return []
    depends = [any(one.error > DECIDED or one.overflows for one in noise) for noise in noises]
    return [pair for pair, dependent in zip(samples, depends, strict=True) if not dependent]


def _weights(model: onnx.ModelProto) -> int:
    return sum(math.prod(one.dims) for one in model.graph.initializer)


def _alike(model: onnx.ModelProto, sample: Values) -> dict[str, Any]:
    """Floats rounded to whole numbers, so that many are equal; whole numbers and truths all the same.

    Floats that are summed are zeros, as in an empty picture, if the model chooses among their sums, else unchanged:
    each library chooses the order, and so which of two equal sums comes out larger. So are quantised floats: whole
    numbers may lie between two steps.
    """
    summed, empty = _sums(model), chooses(model)

    def edge(name: str, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind == "f":
            return (np.zeros_like(value) if empty else value) if summed else np.rint(value)
        return np.full_like(value, value.flat[0])

    return _each(sample, edge)


def _sums(model: onnx.ModelProto) -> bool:
    return any(node.op_type in HEAVY or "Quantize" in node.op_type for node in model.graph.node)


def _ties_survive(model: onnx.ModelProto, feeds: Values, expected: Values) -> bool:
    """Whether sums that are equal stay so in another order: ONNX Runtime's optimisations choose the same."""
    optimised = Reference(model, optimised=True).run_named(feeds)
    return all(differing(output, expected[name]) == 0.0 for name, output in optimised.items())


def _far(model: onnx.ModelProto, sample: Values) -> dict[str, Any]:
    """Floats far from zero and tiny ones between them, whole numbers that are as large as their type allows.

    Excludes floats that may be cast to whole numbers of few bits: ONNX does not define the result beyond their range.
    """
    casts = [node for node in model.graph.node if node.op_type == "Cast"]
    few_bits = any(one.name == "to" and one.i in _FEW_BITS for node in casts for one in node.attribute)

    def edge(name: str, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind == "f":
            if few_bits or value.dtype.itemsize < np.dtype(np.float32).itemsize:
                return value  # float16 has no such numbers
            far: np.ndarray = value * value.dtype.type(STRONG)
            far.reshape(-1)[EACH - 1 :: EACH] = TINY
            return far
        if value.dtype.kind not in "iu" or not _any_whole_number(model, name):
            return value
        limits = np.iinfo(value.dtype)
        fitting = [one for one in (*LARGE, limits.max, limits.min) if limits.min <= one <= limits.max]
        most = fitting[: len(LARGE)] if value.dtype.itemsize >= np.dtype(np.int32).itemsize else fitting
        return np.resize(np.array(most, value.dtype), value.shape)

    return _each(sample, edge)


def _each(sample: Values, edge: Any) -> dict[str, Any]:
    return {
        name: edge(name, value.copy()) if isinstance(value, np.ndarray) and value.size and value.ndim else value
        for name, value in sample.items()
    }


def _differs(feeds: Values, sample: Values) -> bool:
    return any(
        isinstance(value, np.ndarray) and not np.array_equal(value, sample[name], equal_nan=value.dtype.kind == "f")
        for name, value in feeds.items()
    )


def _finite(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def _any_whole_number(model: onnx.ModelProto, name: str) -> bool:
    """Whether an input only takes part in arithmetic: it is no index, size or position, and no divisor."""
    if index_bound(model, name) is not None:
        return False
    kinds = {one.name: one.type.tensor_type.elem_type for one in (*model.graph.value_info, *model.graph.output)}
    queue, seen = [name], {name}
    while queue:
        read = queue.pop()
        for node in model.graph.node:
            places = [place for place, one in enumerate(node.input) if one == read]
            if not places:
                continue
            first = node.op_type in _FIRST_ONLY | _DIVIDED and places == [0]
            if node.domain not in STANDARD or not (first or node.op_type in _WHOLE_NUMBERS):
                return False
            for output in node.output:
                if output and output not in seen and kinds.get(output, 0) in _WHOLE_KINDS:
                    seen.add(output)
                    queue.append(output)
    return True


_FEW_BITS = {
    getattr(onnx.TensorProto, name) for name in ("INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16", "FLOAT16")
}
_WHOLE_KINDS = (
    *(0, onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.UINT8, onnx.TensorProto.INT8),
    *(onnx.TensorProto.UINT32, onnx.TensorProto.UINT64),
)
"""Types to follow; 0 is an unknown one. Only a Cast makes whole numbers of other types."""
