"""In which precision OpenVINO runs a piece: takes what it compiled and the model, gives what is not as written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from collage_evo.backends.profiled import names_in
from collage_evo.graph.operators import HEAVY
from collage_evo.quantise.arithmetic import PACKED, Arithmetic
from collage_evo.quantise.marks import heavy_in_int8, written_in

if TYPE_CHECKING:
    import onnx

_HEAVY_LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
_BLOCKS = frozenset({"Subgraph"})
_INTEGER = ("u8", "i8")


def other_precision(compiled: Any, model: onnx.ModelProto) -> str:
    """Which heavy operators of ``model`` run in another precision than is written for them; empty if none do.

    Of int8 it is known whether any do. What the plugin fused into kernels of its own for whole blocks is not asked;
    attention among these counts where it is in int8.
    """
    written, packed = written_in(model, Arithmetic.BFLOAT16), written_in(model, *PACKED)
    if not heavy_in_int8(model) and not written and not packed:
        return ""
    kernels = list(_kernels(compiled, _HEAVY_LAYERS))
    for names, precision in kernels:
        if names & packed and precision not in _INTEGER:
            return f"{min(names & packed)} is to read weights in int8 and reads {precision}"
    kernels = [kernel for kernel in kernels if not kernel[0] & packed]
    if heavy_in_int8(model) and not any(precision in _INTEGER for _, precision in (*kernels, *_attention(compiled))):
        return "between quantisers it runs none of the heavy operators in int8"
    if not written:
        return ""
    products = _products(model)
    for names, precision in kernels:
        low = names & written
        # A product may be called after what was fused into it alone.
        expected = any(_is_heavy(name) for name in low) or (low == names and precision == "f32")
        if low and expected and precision != "bf16":
            return f"{min(low)} is written in bfloat16 and runs in {precision}"
        heavy = frozenset(filter(_is_heavy, names))
        held = names.union(*(products.get(name, ()) for name in heavy or names))
        if names and not held & written and precision == "bf16":
            return f"{min(names)} runs in bfloat16, in which it is not written"
    return ""


def _products(model: onnx.ModelProto) -> Mapping[str, frozenset[str]]:
    """By operator of ``model``: itself where it is heavy, else the heavy ones that it reads by way of none other."""
    made: dict[str, frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}
    for proto in model.graph.node:
        read = (made.get(name, frozenset[str]()) for name in proto.input)
        found[proto.name] = frozenset({proto.name} if proto.op_type in HEAVY else chain.from_iterable(read))
        made.update(dict.fromkeys(proto.output, found[proto.name]))
    return found


def _is_heavy(name: str) -> bool:
    return name.partition("_")[2] in HEAVY


def _attention(compiled: Any) -> Iterator[tuple[frozenset[str], str]]:
    """Kernels of a Softmax with the products around it. An integer piece may lose the products' names to others."""
    for names, precision in _kernels(compiled, _BLOCKS):
        if any(name.endswith("_Softmax") for name in names):
            yield names, precision


def _kernels(compiled: Any, kinds: Collection[str]) -> Iterator[tuple[frozenset[str], str]]:
    """Names of the model's operators in each kernel of ``kinds``, and its precision."""
    for node in compiled.get_runtime_model().get_ops():
        told = node.get_rt_info()
        keys = ("layerType", "runtimePrecision", "originalLayersNames")
        kind, precision, names = (told[key].astype(str) if key in told else "" for key in keys)
        if kind in kinds:
            yield frozenset(names_in(names)), precision
