"""Weights in int8: takes products that are bounded by reading them, gives the same with a quarter of the bytes.

No data is needed. ``INT8_WEIGHTS`` is standard ONNX: a DequantizeLinear with a scale for each output, which the
library computes while it multiplies in float32. ``INT8_BLOCKS`` is ONNX Runtime's own operator: blocks of weights
along the sum share a scale, blocks of activations are rounded at run time, and integers are multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.quantise.arithmetic import Arithmetic
from collage_evo.quantise.marks import mark_packed
from collage_evo.quantise.scales import quantise_weights, weight_scales

_BLOCK = 128
_MIDDLE = 128
"""The integer that stands for zero."""
_ROUNDED = 4
"""Accuracy level of MatMulNBits: activations in int8. By others the weights become float32 first, which is slow."""
_CONTRIBUTED = "com.microsoft"


def write_packed(model: onnx.ModelProto, ends: Mapping[str, Arithmetic]) -> None:
    """Let the products of ``model`` that make the tensors ``ends`` read their weights in int8, in place."""
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    made: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    packed: list[str] = []
    for proto in graph.node:
        kind = next((ends[name] for name in proto.output if name in ends), None)
        if kind is None:
            made.append(proto)
            continue
        packed.append(proto.name)
        nodes, parts = packed_product(proto, numpy_helper.to_array(stored[proto.input[1]]), kind)
        made += nodes
        constants |= parts
    del graph.node[:]
    graph.node.extend(made)
    read = {name for proto in made for name in proto.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *(numpy_helper.from_array(array, name) for name, array in constants.items())])
    if Arithmetic.INT8_BLOCKS in ends.values():
        import_contributed(model)
    mark_packed(model, packed)


def import_contributed(model: onnx.ModelProto) -> None:
    """Let ``model`` have ONNX Runtime's own operators."""
    if _CONTRIBUTED not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(_CONTRIBUTED, 1))


def packed_product(
    proto: onnx.NodeProto, weights: np.ndarray, kind: Arithmetic
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """What computes a MatMul or Gemm by ``weights``, its second input, in ``kind``; and the constants for that.

    Operators are called after ``proto``, as profiles are read by their names.
    """
    transposed = any(attribute.name == "transB" and attribute.i for attribute in proto.attribute)
    stem = f"{proto.input[1]}_{kind.name.lower()}{'_t' if transposed else ''}"
    if kind is Arithmetic.INT8_WEIGHTS:
        return _by_columns(proto, weights, 0 if transposed else 1, stem)
    return _by_blocks(proto, weights.T if transposed else weights, stem)


def _by_columns(
    proto: onnx.NodeProto, weights: np.ndarray, axis: int, stem: str
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    scales = weight_scales(weights, axis)
    constants = {f"{stem}_q": quantise_weights(weights, scales, axis), f"{stem}_scale": scales}
    exact = helper.make_node(
        "DequantizeLinear", list(constants), [f"{proto.output[0]}_weights"], f"{proto.name}_weights", axis=axis
    )
    product = onnx.NodeProto()
    product.CopyFrom(proto)
    product.input[1] = exact.output[0]
    return [exact, product], constants


def _by_blocks(
    proto: onnx.NodeProto, weights: np.ndarray, stem: str
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """``weights`` are [inputs, outputs]; the operator has them [outputs, blocks, inputs of a block]."""
    inputs, outputs = weights.shape
    blocks = -(-inputs // _BLOCK)
    padded = np.zeros((outputs, blocks * _BLOCK), np.float32)
    padded[:, :inputs] = weights.T
    scales = weight_scales(padded.reshape(-1, _BLOCK), 0)
    numbers = quantise_weights(padded.reshape(-1, _BLOCK), scales, 0)
    shifted = (numbers.astype(np.int16) + _MIDDLE).astype(np.uint8).reshape(outputs, blocks, _BLOCK)
    constants = {f"{stem}_q": shifted, f"{stem}_scale": scales.reshape(outputs, blocks)}
    bias = len(proto.input) > 2 and bool(proto.input[2])
    made = f"{proto.output[0]}_raw" if bias else proto.output[0]
    product = helper.make_node(
        "MatMulNBits", [proto.input[0], *constants], [made], proto.name, domain=_CONTRIBUTED,
        K=inputs, N=outputs, bits=8, block_size=_BLOCK, accuracy_level=_ROUNDED,
    )  # fmt: skip
    if not bias:
        return [product], constants
    return [product, helper.make_node("Add", [made, proto.input[2]], proto.output, f"{proto.name}_bias")], constants
