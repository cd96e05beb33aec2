"""Check that a model, as OpenVINO has read it, runs for all sizes that depend on its data.

An operator that cannot take its inputs' sizes raises on several threads. On one, OpenVINO 2026.4 leaves the outputs
unwritten, or crashes, and either way requests that follow may fail too. So every operator on data-dependent sizes has
to be total: able to take any. Sizes that are equal whatever the data are have the same mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np


class Mark:
    """A size that depends on data; two that may differ are two marks."""


Sizes = tuple["int | Mark", ...]
Rule = Callable[[Any, Sequence[Sizes]], "Sizes | None"]
"""An operator's first output's sizes by those of its inputs; () where they are new, None where it is not total."""
ANY: Sizes = ()


def sizes_not_taken(model: Any) -> str:
    """The operator of ``model`` that does not take all sizes of its inputs; empty if all do."""
    return "" if _settled(model) else _not_total(_folded(model))


def _not_total(model: Any) -> str:
    sizes_of: dict[tuple[str, int], Sizes] = {}
    for op in model.get_ordered_ops():
        kind = op.get_type_name()
        if problem := next(filter(None, map(_not_total, bodies_of(op, kind))), ""):
            return problem
        sources = [port.get_source_output() for port in op.inputs()]
        if any(port.get_partial_shape().rank.is_dynamic for port in (*sources, *op.outputs())):
            return f"{kind}: the number of axes that it meets depends on data"
        input_sizes = [sizes_of[source.get_node().get_name(), source.get_index()] for source in sources]
        output_sizes: Sizes | None = ANY
        if any(isinstance(size, Mark) for sizes in input_sizes for size in sizes):
            output_sizes = _RULES[kind](op, input_sizes) if kind in _RULES else None
        if output_sizes is None:
            return f"{kind} meets sizes that depend on data, and may not be able to take them"
        for place, port in enumerate(op.outputs()):
            sizes_of[op.get_name(), place] = tuple(_sizes(port.get_partial_shape(), output_sizes))
    return ""


def _settled(model: Any) -> bool:
    """Whether no size depends on data, as in most models: the full check takes as long as reading the model."""
    if model.is_dynamic():  # reads each operator's first output
        return False
    ops = ((op, op.get_output_size()) for op in model.get_ops())
    several = (op.get_output_partial_shape(place) for op, size in ops for place in range(1, size))
    return not any(shape.is_dynamic for shape in several) and not any(
        bodies_of(op, op.get_type_name()) for op in model.get_ops()
    )


def _folded(model: Any) -> Any:
    """A copy with numbers for sizes that only seem to depend on data: the library misses those behind Identity."""
    from openvino.passes import ConstantFolding, Manager

    copy = model.clone()
    for op in copy.get_ordered_ops():
        if op.get_type_name() == "Identity":
            op.output(0).replace(op.input_value(0))
    copy.validate_nodes_and_infer_types()
    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(copy)
    return copy


def bodies_of(op: Any, kind: str) -> tuple[Any, ...]:
    """The models inside ``op``, of that kind: branches, or the body of a loop."""
    if kind == "If":
        return op.get_function(0), op.get_function(1)
    return (op.get_function(),) if kind in ("Loop", "TensorIterator") else ()


def _sizes(shape: Any, rule_sizes: Sizes) -> Iterator[int | Mark]:
    """The library's own sizes; where it has none, ``rule_sizes``, those by a rule."""
    for size, declared in zip_longest(shape, rule_sizes if len(rule_sizes) == len(shape) else ()):
        yield size.get_length() if size.is_static else declared if isinstance(declared, Mark) else Mark()


def _constant(op: Any, place: int) -> list[int] | None:
    """The whole numbers of a constant input."""
    source = op.input_value(place).get_node() if place < op.get_input_size() else None
    if source is None or source.get_type_name() != "Constant":
        return None
    return [int(value) for value in np.asarray(source.data).reshape(-1)]


def _same(op: Any, inputs: Sequence[Sizes]) -> Sizes:
    return inputs[0]


def _spread(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    """Broadcasting: equal sizes, or one of them 1, from the last axis on."""
    result: list[int | Mark] = []
    for column in zip_longest(*map(reversed, inputs), fillvalue=1):
        wide = {size for size in column if size != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(reversed(result))


def _reduced(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    declared = _constant(op, 1)
    axes = [axis % len(inputs[0]) for axis in (range(len(inputs[0])) if declared is None else declared)]
    # The maximum of no elements is minus infinity in ONNX, but not here.
    if op.get_type_name() in ("ReduceMax", "ReduceMin") and any(isinstance(inputs[0][axis], Mark) for axis in axes):
        return None
    if declared is None:
        return ANY
    reduced = [1 if axis in axes else size for axis, size in enumerate(inputs[0])]
    keeps = op.get_attributes()["keep_dims"]
    return tuple(size for axis, size in enumerate(reduced) if keeps or axis not in axes)


def _transposed(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    order = _constant(op, 1)
    return None if order is None else tuple(inputs[0][axis] for axis in order)


def _unsqueezed(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    axes, rest = _constant(op, 1), iter(inputs[0])
    if axes is None:
        return None
    rank = len(inputs[0]) + len(axes)
    new = {axis % rank for axis in axes}
    return tuple(1 if axis in new else next(rest) for axis in range(rank))


def _squeezed(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    axes = _constant(op, 1)
    if axes is None or any(inputs[0][axis] != 1 for axis in axes):
        return None
    gone = {axis % len(inputs[0]) for axis in axes}
    return tuple(size for axis, size in enumerate(inputs[0]) if axis not in gone)


def _reshaped(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    """Total where one axis takes all unknown sizes, and the others divide the known ones."""
    target = _constant(op, 1)
    if target is None or target.count(-1) != 1:
        return None
    left = [size for size in inputs[0] if isinstance(size, int)]
    for axis, size in enumerate(target):
        if size == 0 and op.get_attributes()["special_zero"]:
            copied = inputs[0][axis] if axis < len(inputs[0]) else 0
            if isinstance(copied, Mark):
                return None
            target[axis] = copied
    others = math.prod(size for size in target if size != -1)
    return ANY if others > 0 and math.prod(left) % others == 0 else None


def _joined(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    axis = op.get_attributes()["axis"] % len(inputs[0])
    others = {(*sizes[:axis], *sizes[axis + 1 :]) for sizes in inputs}
    return (*inputs[0][:axis], Mark(), *inputs[0][axis + 1 :]) if len(others) == 1 else None


def _gathered(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    """Total where the axis has a known size: another check proves that indices are inside."""
    axes = _constant(op, 2)
    if not axes or op.get_attributes()["batch_dims"]:
        return None
    axis = axes[0] % len(inputs[0])
    return None if isinstance(inputs[0][axis], Mark) else (*inputs[0][:axis], *inputs[1], *inputs[0][axis + 1 :])


def _sliced(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    """Slice: bounds are clipped to the axis, so it is total."""
    axes = _constant(op, 4)
    if axes is None:
        return ANY
    cut = {axis % len(inputs[0]) for axis in axes}
    return tuple(Mark() if axis in cut else size for axis, size in enumerate(inputs[0]))


def _along(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    """Total where the size of one axis is fixed: as many elements of it are taken as it has had before."""
    declared = op.get_attributes().get("axis")
    axes = _constant(op, 1) if declared is None else [declared]
    return None if axes is None or isinstance(inputs[0][axes[0]], Mark) else inputs[0]


def _product(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    declared = op.get_attributes()
    left, right = inputs
    if min(len(left), len(right)) < 2:
        return None
    rows, inner = reversed(left[-2:]) if declared["transpose_a"] else left[-2:]
    also, columns = reversed(right[-2:]) if declared["transpose_b"] else right[-2:]
    batch = _spread(op, (left[:-2], right[:-2]))
    return None if inner != also or batch is None else (*batch, rows, columns)


def _by_sample(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    """Total where only the number of samples depends on data."""
    if any(isinstance(size, Mark) for size in (*inputs[0][1:], *(size for sizes in inputs[1:] for size in sizes))):
        return None
    return (inputs[0][0], *(Mark() for _ in inputs[0][1:]))


def _boxes(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    boxes, scores = inputs[:2]
    return ANY if (boxes[0], boxes[1]) == (scores[0], scores[2]) else None


def _regions(op: Any, inputs: Sequence[Sizes]) -> Sizes | None:
    image, boxes, batch = inputs
    return None if any(isinstance(size, Mark) for size in image) or boxes[0] != batch[0] else ANY


_BY_ELEMENT = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceiling", "Clamp", "Convert", "Cos", "Cosh", "Elu"),
    *("Erf", "Exp", "Floor", "Gelu", "HSigmoid", "HSwish", "IsFinite", "IsInf", "IsNaN", "Log", "LogicalNot"),
    *("Mish", "Negative", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "SoftPlus", "SoftSign", "Sqrt", "Swish"),
    *("Tan", "Tanh", "Softmax", "LogSoftmax", "Result"),
)
_OF_SEVERAL = (
    *("Add", "Subtract", "Multiply", "Divide", "Power", "Maximum", "Minimum", "Mod", "FloorMod", "SquaredDifference"),
    *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalXor"),
    *("Select", "FakeQuantize"),
)
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin")
_FILTERS = ("Convolution", "GroupConvolution", "MaxPool", "AvgPool")
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_BY_ELEMENT, _same),
    **dict.fromkeys(_OF_SEVERAL, _spread),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys(_FILTERS, _by_sample),
    **dict.fromkeys(("TopK", "Split", "VariadicSplit"), _along),
    **dict.fromkeys(("ShapeOf", "NonZero", "If", "OneHot", "Tile"), lambda op, inputs: ANY),
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
    "Squeeze": _squeezed,
    "Reshape": _reshaped,
    "Concat": _joined,
    "Gather": _gathered,
    "Slice": _sliced,
    "MatMul": _product,
    "NonMaxSuppression": _boxes,
    "ROIAlign": _regions,
}
