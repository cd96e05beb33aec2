"""In which precision OpenVINO runs a piece: takes what it compiled and the model, gives what is not as written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from collage_evo.backends.profiled import names_in
from collage_evo.graph.operators import HEAVY
from collage_evo.quantise.marks import heavy_in_int8, written_in_bfloat16, written_packed

if TYPE_CHECKING:
    import onnx

_HEAVY_LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
_INTEGER = ("u8", "i8")


def other_precision(compiled: Any, model: onnx.ModelProto) -> str:
    """Which heavy operators of ``model`` run in another precision than is written for them; empty if none do.

    Of int8 it is known whether any do. What the plugin fused into kernels of its own for whole blocks is not asked.
    """
    written, packed = written_in_bfloat16(model), written_packed(model)
    if not heavy_in_int8(model) and not written and not packed:
        return ""
    kernels = list(_heavy_kernels(compiled))
    for names, precision in kernels:
        if names & packed and precision not in _INTEGER:
            return f"{min(names & packed)} is to read weights in int8 and reads {precision}"
    kernels = [kernel for kernel in kernels if not kernel[0] & packed]
    if heavy_in_int8(model) and not any(precision in _INTEGER for _, precision in kernels):
        return "between quantisers it runs none of the heavy operators in int8"
    for names, precision in kernels if written else ():
        low = names & written
        # A product may be called after what was fused into it alone.
        expected = any(_is_heavy(name) for name in low) or (low == names and precision == "f32")
        if low and expected and precision != "bf16":
            return f"{min(low)} is written in bfloat16 and runs in {precision}"
        if names and not low and precision == "bf16":
            return f"{min(names)} runs in bfloat16, in which it is not written"
    return ""


def _is_heavy(name: str) -> bool:
    return name.partition("_")[2] in HEAVY


def _heavy_kernels(compiled: Any) -> Iterator[tuple[frozenset[str], str]]:
    """Names of the model's operators in each kernel for convolutions or products, and its precision."""
    for node in compiled.get_runtime_model().get_ops():
        told = node.get_rt_info()
        keys = ("layerType", "runtimePrecision", "originalLayersNames")
        kind, precision, names = (told[key].astype(str) if key in told else "" for key in keys)
        if kind in _HEAVY_LAYERS:
            yield frozenset(names_in(names)), precision
