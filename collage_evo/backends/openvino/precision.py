"""Check of the precision in which OpenVINO runs a piece against the one written into the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from collage_evo.backends.openvino.profile import ORIGINS, noted
from collage_evo.backends.profiled import names_in
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.precision.quantise.arithmetic import PACKED, Arithmetic
from collage_evo.precision.quantise.marks import heavy_in_int8, written_in

if TYPE_CHECKING:
    import onnx

_HEAVY_LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
_BLOCK = "Subgraph"
_INTEGER = ("u8", "i8")
_Layer = tuple[str, frozenset[str], str]
"""Kind of kernel, names of the model's operators in it, and its precision."""


def other_precision(compiled: Any, model: onnx.ModelProto) -> str:
    """The heavy operators of ``model`` that run in another precision than the written one; empty if none do.

    For int8 the check only finds whether any do. It skips the plugin's own kernels for whole blocks, except for
    attention, which counts where it is in int8.
    """
    written, packed = written_in(model, Arithmetic.BFLOAT16), written_in(model, *PACKED)
    if not heavy_in_int8(model) and not written and not packed:
        return ""
    layers = list(_layers(compiled))
    kernels = [(names, precision) for kind, names, precision in layers if kind in _HEAVY_LAYERS]
    for names, precision in kernels:
        if names & packed and precision not in _INTEGER:
            return f"{min(names & packed)} is to read weights in int8 and reads {precision}"
    kernels = [kernel for kernel in kernels if not kernel[0] & packed]
    integer = any(precision in _INTEGER for _, precision in kernels) or any(map(_is_int8_attention, layers))
    if heavy_in_int8(model) and not integer:
        return "between quantisers it runs none of the heavy operators in int8"
    if not written:
        return ""
    products = _products(model)
    for names, precision in kernels:
        low = names & written
        # A product may have only the name of an operator that was fused into it.
        expected = any(_is_heavy(name) for name in low) or (low == names and precision == "f32")
        if low and expected and precision != "bf16":
            return f"{min(low)} is written in bfloat16 and runs in {precision}"
        heavy = frozenset(filter(_is_heavy, names))
        held = names.union(*(products.get(name, ()) for name in heavy or names))
        if names and not held & written and precision == "bf16":
            return f"{min(names)} runs in bfloat16, in which it is not written"
    return ""


def _products(model: onnx.ModelProto) -> Mapping[str, frozenset[str]]:
    """By operator of ``model``: itself where it is heavy, else the nearest heavy ones before it."""
    makers: dict[str, frozenset[str]] = {}
    products: dict[str, frozenset[str]] = {}
    for proto in model.graph.node:
        read = (makers.get(name, frozenset[str]()) for name in proto.input)
        products[proto.name] = frozenset({proto.name} if proto.op_type in HEAVY else chain.from_iterable(read))
        makers.update(dict.fromkeys(proto.output, products[proto.name]))
    return products


def _is_heavy(name: str) -> bool:
    return name.partition("_")[2] in HEAVY


def _is_int8_attention(layer: _Layer) -> bool:
    """Whether ``layer`` is an integer Softmax with the products around it, which may have other operators' names."""
    kind, names, precision = layer
    return kind == _BLOCK and precision in _INTEGER and any(name.endswith("_Softmax") for name in names)


def _layers(compiled: Any) -> Iterator[_Layer]:
    for kernel in compiled.get_runtime_model().get_ops():
        kind, names, precision = (noted(kernel, key) for key in ("layerType", ORIGINS, "runtimePrecision"))
        yield kind, frozenset(names_in(names)), precision
