"""Static types: which tensors have one shape whatever the inputs hold, from one observed run and proof.

The shapes themselves come from the run. That they hold for every run follows operator by operator: an output's
shape is a function of the inputs' shapes and, for some operators, of the values of certain inputs, which then have to
be constant. Where no rule applies, ONNX's own shape inference may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.convert.observe import Observation
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.graph.ir.weights import bodies
from collage_evo.models.builder import refill, typed

STANDARD = ("", "ai.onnx")
BY_VALUE: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "TopK", "OneHot", "Squeeze", "Unsqueeze", "Split"), (1,)),
    **dict.fromkeys(("Upsample", "Compress", "CenterCropPad", "AffineGrid"), (1,)),
    **dict.fromkeys(("ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow"), (0,)),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
    "Resize": (1, 2, 3),
    "Range": (0, 1, 2),
    "MaxUnpool": (2,),
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "STFT": (1, 3),
    "MelWeightMatrix": (0, 1),
}
"""Inputs whose values determine the shape of an operator's output. For reductions these are the axes, input 1."""
_BY_DATA = {
    *("NonZero", "NonMaxSuppression", "Unique", "ImageDecoder", "Loop", "Scan", "If"),
    *("StringSplit", "StringNormalizer"),
    *("SequenceAt", "SequenceMap", "ConcatFromSequence", "OptionalGetElement", "SequenceLength"),
}
"""Operators whose output shape may depend on data, or whose body would have to be analysed."""
CONTRIB_BY_VALUE: Mapping[str, tuple[int, ...]] = {"ExpandDims": (1,), "CropAndResize": (3,), "Range": (0, 1, 2)}
_CONTRIB_BY_DATA = {
    *("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch", "Tokenizer", "Unique", "Pad", "SparseAttention"),
    *("RemovePadding", "RestorePadding", "DynamicTimeWarping"),
    *("GroupQueryAttention", "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "DecoderAttention"),
}
_SIZES = ("Shape", "Size")
NONDETERMINISTIC = {
    *("Bernoulli", "Multinomial", "Dropout"),
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}
"""Operators whose results differ, or may differ, each time."""


@dataclass(frozen=True)
class StaticTypes:
    """Each tensor's type, uncertain sizes as -1; constants are the tensors that no input changes."""

    tensors: Mapping[str, Tensor]
    constants: Mapping[str, np.ndarray]


def static_types(model: onnx.ModelProto, seen: Observation, others: Sequence[Observation] = ()) -> StaticTypes:
    """The types that hold for every run of ``model`` on inputs of the shapes in ``seen``.

    ``others``: runs on inputs of other shapes, for an open model. Sizes that differ there vary. So does each size
    that shape inference does not prove, and what depends on such a size is no constant.
    """
    graph = model.graph
    constant = {tensor.name for tensor in graph.initializer}
    static = {*constant, *(value.name for value in graph.input)}
    shapes = _inferred_shapes(model)
    # That no run shows another size proves nothing: of a limit of four positions all runs on longer inputs show four.
    proven = {**{name: seen.tensors[name].shape for name in static & seen.tensors.keys()}, **shapes}
    varies = {name: _varying(tensor, others, proven.get(name, ())) for name, tensor in seen.tensors.items()}
    open_ = set[str]()
    for node in graph.node:
        outputs = [name for name in node.output if name]
        read = {*reads(node)}
        if _is_constant(node, read, constant, static):
            constant.update(outputs)
            static.update(outputs)
            if not read.isdisjoint(open_) or (node.op_type in _SIZES and varies.get(node.input[0])):
                open_.update(outputs)
        elif read <= static and _follows(node, constant) and not (others and _squeezes_ones(node)):
            static.update(outputs)
        else:
            # A name that only shape inference proves has to have the observed shape.
            static.update(name for name in outputs if shapes.get(name) == seen.tensors[name].shape)
    tensors = {
        name: replace(tensor, varies=varies[name])
        if name in static and _same_rank(tensor, others)
        else Tensor(name, tensor.dtype, (-1,) * len(tensor.shape))
        for name, tensor in seen.tensors.items()
    }
    values = {name: seen.values[name] for name in (constant - open_) & seen.values.keys() if tensors[name].static}
    return StaticTypes(tensors, values)


def _same_rank(tensor: Tensor, others: Sequence[Observation]) -> bool:
    return all(len(other.tensors[tensor.name].shape) == len(tensor.shape) for other in others)


def _varying(tensor: Tensor, others: Sequence[Observation], proven: Sequence[int]) -> tuple[int, ...]:
    """The axes of ``tensor`` whose size differs in one of ``others``, or is not ``proven``; none without ``others``.

    All, where it is of another rank in one of ``others``, or its rank is not proven.
    """
    if not _same_rank(tensor, others) or len(proven) != len(tensor.shape):
        return tuple(range(len(tensor.shape))) if others else ()
    sizes = zip(tensor.shape, *(other.tensors[tensor.name].shape for other in others), strict=True)
    return tuple(axis for axis, seen in enumerate(sizes) if others and {*seen, proven[axis]} != {tensor.shape[axis]})


def annotate(model: onnx.ModelProto, types: StaticTypes) -> None:
    """Write the types into ``model``, in place of all that it declares except its inputs' where no size varies."""
    graph = model.graph
    del graph.value_info[:]
    ends = {value.name: value for value in graph.output}
    inputs = {value.name: value for value in graph.input}
    for name, tensor in types.tensors.items():
        if name in inputs and tensor.varies:
            _declare(inputs[name], tensor)
        if name in ends:
            _declare(ends[name], tensor)
        elif name not in inputs and tensor.dtype != OPAQUE:
            _declare(graph.value_info.add(name=name), tensor)


def embed_constants(model: onnx.ModelProto, constants: Mapping[str, np.ndarray]) -> None:
    """Replace nodes by the known values that they compute; the model's own outputs stay computed."""
    graph = model.graph
    final = {value.name for value in graph.output}
    remaining = []
    for node in graph.node:
        outputs = [name for name in node.output if name]
        if outputs and all(name in constants and name not in final for name in outputs):
            graph.initializer.extend(numpy_helper.from_array(constants[name], name) for name in outputs)
        else:
            remaining.append(node)
    refill(graph.node, remaining)


def captures(node: onnx.NodeProto) -> set[str]:
    """Tensors of the surrounding graph that the bodies of ``node`` read."""
    captured: set[str] = set()
    for body in bodies(node):
        defined = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        defined |= {name for inner in body.node for name in inner.output}
        read = {name for inner in body.node for name in reads(inner)} | {value.name for value in body.output}
        captured |= read - defined
    return captured


def reads(node: onnx.NodeProto) -> list[str]:
    """The tensors of the graph around ``node`` that it reads, those that only its bodies read last."""
    return [name for name in (*node.input, *sorted(captures(node))) if name]


def is_random(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether results of ``nodes`` differ, or may differ, each time."""
    return any(
        node.op_type in NONDETERMINISTIC or any(is_random(body.node) for body in bodies(node)) for node in nodes
    )


def _is_constant(node: onnx.NodeProto, reads: Collection[str], constant: set[str], static: set[str]) -> bool:
    if node.domain in STANDARD and node.op_type in _SIZES:
        return node.input[0] in static
    return node.op_type not in NONDETERMINISTIC and not any(bodies(node)) and all(name in constant for name in reads)


def _follows(node: onnx.NodeProto, constant: set[str]) -> bool:
    """Whether the outputs' shapes follow from the inputs' shapes and from inputs that are constant."""
    if node.domain in STANDARD:
        by_value, by_data = BY_VALUE, _BY_DATA
    elif node.domain.startswith("com.microsoft"):
        by_value, by_data = CONTRIB_BY_VALUE, _CONTRIB_BY_DATA
    else:
        return node.domain == "ai.onnx.ml"
    if node.op_type in by_data:
        return False
    deciding = (1,) if node.op_type.startswith("Reduce") else by_value.get(node.op_type, ())
    values = (node.input[position] for position in deciding if position < len(node.input))
    return all(not name or name in constant for name in values)


def _squeezes_ones(node: onnx.NodeProto) -> bool:
    """Whether ``node`` is a Squeeze without axes: the rank of its output depends on sizes."""
    return node.op_type == "Squeeze" and len(node.input) == 1 and not node.attribute


def inferred(model: onnx.ModelProto) -> Sequence[onnx.ValueInfoProto]:
    """Types that ONNX's shape inference finds for the tensors of ``model`` from only the inputs."""
    typed = inferred_model(model)
    return (*typed.graph.value_info, *typed.graph.output) if typed is not None else ()


def inferred_model(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The result of :func:`~collage_evo.models.builder.typed`; None where it fails."""
    try:
        return typed(model)
    except Exception:  # InferenceError, or what C++ raises: inference is one of two proofs, and optional
        return None


def _inferred_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The inferred shapes, with -1 for a size that is not known."""
    kinds = {value.name: value.type.tensor_type for value in inferred(model)}
    return {
        name: tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
        for name, kind in kinds.items()
        if kind.HasField("shape")
    }


def _declare(value: onnx.ValueInfoProto, tensor: Tensor) -> None:
    """Set type and shape in ``value``; an open size gets no number, and one that varies keeps its name, beside a
    denotation.

    Strings and sequences do not change.
    """
    kind = value.type.tensor_type
    if tensor.dtype == OPAQUE:
        if value.type.WhichOneof("value") != "tensor_type" or kind.elem_type != TensorProto.STRING:
            return
    else:
        kind.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    names = [dim.dim_param for dim in kind.shape.dim]
    kind.shape.Clear()
    kind.shape.SetInParent()
    for axis, size in enumerate(tensor.shape):
        dim = kind.shape.dim.add()
        if axis in tensor.varies:
            dim.denotation = str(size)
            if len(names) == len(tensor.shape) and names[axis]:
                dim.dim_param = names[axis]
        elif size >= 0:
            dim.dim_value = size
