"""The OpenVINO backend: infer requests of the CPU plugin on the caller's buffers."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import (
    YES,
    Backend,
    BuildFailure,
    Built,
    Executable,
    Probe,
    Support,
    Target,
    Tensors,
    no,
)
from collage_evo.backends.checks import (
    lacks_instructions,
    plain,
    probe_distribution,
    require_borders,
    returns_failures,
    written_variants,
)
from collage_evo.backends.openvino.blob import blob_files, write_blob
from collage_evo.backends.openvino.int8 import INT8
from collage_evo.backends.openvino.masks import compare_truths, has_wrong_rows, spread_masks
from collage_evo.backends.openvino.plain import OpenVinoPlain
from collage_evo.backends.openvino.precision import other_precision
from collage_evo.backends.openvino.profile import counted_kernels, profile_kernels
from collage_evo.backends.openvino.rules import refusal
from collage_evo.backends.openvino.sizes import sizes_not_taken
from collage_evo.backends.openvino.ties import choose_as_onnx
from collage_evo.backends.profiled import KernelsOfRuns, KernelTime
from collage_evo.backends.variants import AS_IT_COMES, DEFAULT, Arithmetic, TargetLike, Variant
from collage_evo.errors import one_line
from collage_evo.graph.ir.graph import COMPOSITE, Graph, GraphCache, Node, NodeSet, members
from collage_evo.hardware.cores import own_cores
from collage_evo.hardware.processor import level, this_machine

if TYPE_CHECKING:
    import onnx


_FILES = {"default": "model.blob", "bf16": "model.bf16.blob", "f16": "model.f16.blob", AS_IT_COMES: "model.own.blob"}
"""The compiled model, named after its precision."""
SHARED_BYTES = 2**26
"""The library shares the memory of the file's content with the session from so many bytes on."""
_HINTS = {Arithmetic.FLOAT32: "f32", Arithmetic.BFLOAT16: "bf16", Arithmetic.FLOAT16: "f16"}
_DTYPES = frozenset({"float32", "int64", "int32", "bool"})
_LEVELS = {"avx2": "AVX2", "avx512": "AVX512_CORE", "avx512_bf16": "AVX512_CORE_BF16"}
"""The library's names of the levels to which a processor can be held."""
_MAKING = threading.Lock()


def _reason(error: Exception) -> str:
    """The error's message without locations in the library's source."""
    lines = [line.strip() for line in str(error).splitlines()]
    messages = [line for line in lines if line and not line.startswith(("Exception from", "Check '"))]
    return " ".join(messages)[:300] or one_line(error)


class OpenVinoBackend(Backend):
    """One stream, ``target.threads`` threads, float32 arithmetic, no pinning beyond the process's own.

    The variants ``bf16`` and ``f16`` let the plugin compute in bfloat16 and float16, on processors that do. It runs
    operators behind quantisers in int8, all others as ``default`` or, in ``bf16-int8``, as ``bf16``. These are hints
    for a whole piece; ``bf16-cast`` writes bfloat16 into operators, so that one piece can mix it with float32 and
    int8, and ``int8-weights`` stores weights in int8 that are read for few rows.

    A piece is stored as the compiled model's exported blob, with bit for bit the same results and the same speed.
    """

    name: ClassVar[str] = "openvino"
    title: ClassVar[str] = "OpenVINO"
    extra: ClassVar[str] = "openvino"
    maps_weights: ClassVar[bool] = True
    execution_providers: ClassVar[Mapping[str, str]] = {"cpu": "OpenVINOExecutionProvider"}
    variants: ClassVar[tuple[Variant, ...]] = (
        DEFAULT,
        Variant("bf16", Arithmetic.BFLOAT16),
        Variant("f16", Arithmetic.FLOAT16),
        Variant("int8", Arithmetic.INT8, base="default", int8_form=INT8),
        Variant("int8-all", Arithmetic.INT8, base="default", int8_form=INT8, everything=True),
        Variant("bf16-int8", Arithmetic.INT8, base="bf16", int8_form=INT8),
        Variant("bf16-int8-all", Arithmetic.INT8, base="bf16", int8_form=INT8, everything=True),
        Variant("bf16-cast", Arithmetic.BFLOAT16, base="default"),
        Variant("int8-weights", Arithmetic.INT8_WEIGHTS, base="default"),
    )
    # The library chooses the precision, so that its outputs may be off by bfloat16's rounding.
    as_it_comes: ClassVar[Variant] = Variant(AS_IT_COMES, Arithmetic.BFLOAT16)
    refuses_shapes: ClassVar[bool] = False

    def probe(self) -> Probe:
        return probe_distribution("openvino", "openvino")

    def supports_node(self, graph: Graph, node: Node) -> Support:
        if node.domain == COMPOSITE:
            return _composite(graph, node)
        reason = self.known_wrong(graph, node)
        return no(reason) if reason else plain(graph, node, _DTYPES)

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """A lower precision differs where there are float32 tensors, int8 where some can be quantised."""
        offered = written_variants(self.variants, graph, nodes)
        offered += tuple(v for v in self.variants if v.base == v.name and _rounds(v, graph, nodes))
        return tuple(v for v in self.variants if v in offered)

    def known_wrong(self, graph: Graph, node: Node) -> str:
        return refusal(_opened(graph) if graph.is_open else graph, node)

    def bits(self, variant: Variant) -> int:
        return 32  # in the CPU plugin, whatever the type

    def runs_any_model(self, variant: Variant) -> bool:
        return True

    def like_defaults(self, target: TargetLike) -> Variant | None:
        """The CPU plugin chooses bfloat16 by default where the processor multiplies in it."""
        usual, lower = super().like_defaults(target), self.variant("bf16")
        return lower if usual is not None and not self.declines(lower) else usual

    def declines(self, variant: Variant) -> str:
        return lacks_instructions(variant.arithmetic, self.variant(variant.base).arithmetic)

    def plain_files(self) -> OpenVinoPlain:
        return OpenVinoPlain(lambda model: _read(_core(), model, DEFAULT), _config)

    @returns_failures(_reason)
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        from collage_evo.graph.load.data import given_inputs  # serving does not need it

        core = _core()
        config = _config(target, variant)
        read = _read(core, model, variant)
        is_open = any(port.get_partial_shape().is_dynamic for port in read.inputs)
        if is_open and variant.name != AS_IT_COMES and has_wrong_rows(read):
            config["SNIPPETS_MODE"] = "DISABLE"
        if not is_open and (problem := sizes_not_taken(read)):  # open inputs have only shapes that were proven
            return BuildFailure(f"openvino: {problem}", declined=True)
        compiled = core.compile_model(read, "CPU", config)
        if len(compiled.inputs) != len(given_inputs(model)):
            return BuildFailure("openvino: it drops inputs that nothing reads", declined=True)
        if problem := _other_shapes(compiled.outputs, model) or other_precision(compiled, model):
            return BuildFailure(f"openvino: {problem}", declined=True)
        # Importing is quicker than compiling again: an operator 3 ms against 12, MobileNet v2 32 against 150,
        # ResNet-50 130 against 190.
        return Built(write_blob(workdir / _FILES[variant.name], compiled.export_model().getbuffer()))

    def load(self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors) -> Executable:
        compiled, shared = _imported(workdir / _FILES[variant.name], _config(target, variant))
        require_borders(self.name, list(map(_type_of, compiled.inputs)), inputs)
        require_borders(self.name, list(map(_type_of, compiled.outputs)), outputs)
        return _Loaded(compiled, shared)

    def profiles(self, variant: Variant) -> bool:
        return True

    def profile(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[np.ndarray], seconds: float
    ) -> Sequence[KernelTime]:
        loaded, _ = self.load_profiled(workdir, target, variant)
        return profile_kernels(loaded.compiled, inputs, seconds)

    def load_profiled(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors = ()
    ) -> tuple[_Loaded, KernelsOfRuns]:
        config = {**_config(target, variant), "PERF_COUNT": "YES"}
        loaded = _Loaded(*_imported(workdir / _FILES[variant.name], config))
        return loaded, lambda runs: [counted_kernels(loaded.compiled, loaded.request)] * runs


def _imported(path: Path, config: Mapping[str, Any]) -> tuple[Any, np.ndarray | None]:
    """The compiled model of the files at ``path``, and the memory that it shares and that has to outlive it."""
    files = blob_files(path)
    sizes = [file.stat().st_size for file in files]
    if sum(sizes) < SHARED_BYTES:
        return _core().import_model(b"".join(file.read_bytes() for file in files), "CPU", config), None
    from openvino import Tensor as SharedTensor

    # From bytes the library copies all weights once more (docs/results.md has times and memory). The files are not
    # mapped, because the library goes on reading: one that is overwritten meanwhile would change the results.
    memory = mmap.mmap(-1, sum(sizes))  # aligned to pages, unlike an array
    end = 0
    for file, size in zip(files, sizes, strict=True):
        with file.open("rb") as part:
            part.readinto(memoryview(memory)[end : end + size])
        end += size
    shared = np.frombuffer(memory, np.uint8)
    return _core().import_model(SharedTensor(shared, shape=[shared.size]), "CPU", config), shared


@GraphCache
def _opened(graph: Graph) -> Graph:
    """``graph`` with -1 for each size that follows the inputs'."""
    return replace(graph, tensors={name: one.opened for name, one in graph.tensors.items()})


def _rounds(variant: Variant, graph: Graph, nodes: NodeSet) -> bool:
    """Whether results of ``variant`` differ from float32 arithmetic: only where there are float32 tensors."""
    if variant.arithmetic is Arithmetic.FLOAT32:
        return True
    touched = (name for index in members(nodes) for name in (*graph.nodes[index].inputs, *graph.nodes[index].outputs))
    return any(graph.tensors[name].dtype == "float32" for name in touched if name)


def _read(core: Any, model: onnx.ModelProto, variant: Variant) -> Any:
    """``model`` as the library's own: unchanged for the variant with the library's defaults, else corrected.

    A heavy one is read through a file, beside the weights that the library maps.
    """
    from collage_evo.graph.ir.weights import is_heavy, saved_near_weights

    if is_heavy(model):
        with saved_near_weights(model) as path:
            read = core.read_model(str(path))
    else:
        read = core.read_model(model.SerializeToString())
    if variant.name != AS_IT_COMES:
        spread_masks(read)
        choose_as_onnx(read)
        compare_truths(read)
    return read


def _composite(graph: Graph, node: Node) -> Support:
    """Whether an operator with a body or inner open shapes is taken: the tensors at its border need known types."""
    for name in (*node.inputs, *node.outputs):
        tensor = graph.tensors[name]
        if tensor.dtype not in _DTYPES:
            return no(f"tensor {name} is {tensor.dtype}; only {', '.join(sorted(_DTYPES))} are taken")
    from collage_evo.graph.check.scopes import inner_operators  # serving does not need it

    for inside, inner in inner_operators(graph, node):
        if inner.domain not in ("", "ai.onnx"):
            return no(f"operators of the domain {inner.domain} are not taken")
        if reason := refusal(inside, inner):
            return no(reason)
    return YES


class _Loaded:
    def __init__(self, compiled: Any, shared: np.ndarray | None) -> None:
        self.compiled, self._shared = compiled, shared
        self.request: Any = None
        """Of the latest call of :meth:`bind`; for :meth:`run` its first call makes one, if there is none."""

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        from openvino import Tensor as SharedTensor

        request = self.request = self.compiled.create_infer_request()
        request.shared = self._shared  # the function that is returned may outlive this object
        ports = (self.compiled.inputs, self.compiled.outputs)
        setters = (request.set_input_tensor, request.set_output_tensor)
        for port_list, setter, arrays in zip(ports, setters, (inputs, outputs), strict=True):
            for index, (port, array) in enumerate(zip(port_list, arrays, strict=True)):
                _require_same_type(port, array)
                setter(index, SharedTensor(_writeable(array), shared_memory=True))
        return partial(request.infer, share_outputs=True)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        from openvino import Tensor as SharedTensor

        if self.request is None:
            self.request = self.compiled.create_infer_request()  # takes longer than a small piece
        for index, array in enumerate(inputs):
            self.request.set_input_tensor(index, SharedTensor(_writeable(array), shared_memory=True))
        self.request.infer(share_outputs=True)
        return [self.request.get_output_tensor(index).data.copy() for index in range(len(self.compiled.outputs))]


def _other_shapes(ports: Sequence[Any], model: onnx.ModelProto) -> str:
    """The output that lacks the static shape that ``model`` declares; empty if all have it."""
    for port, value in zip(ports, model.graph.output, strict=True):
        dims = value.type.tensor_type.shape.dim
        # Some exporters write -1 for an open size.
        if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
            continue
        declared = tuple(dim.dim_value for dim in dims)
        shape = port.partial_shape
        if shape.is_dynamic or tuple(shape.to_shape()) != declared:
            return f"gives output {value.name} as {shape}, not {list(declared)}"
    return ""


def _type_of(port: Any) -> tuple[str, list[int] | None]:
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        return np.dtype(port.element_type.to_dtype()).name, None
    return np.dtype(port.element_type.to_dtype()).name, [-1 if d.is_dynamic else d.get_length() for d in shape]


def _require_same_type(port: Any, array: np.ndarray) -> None:
    """Refuse a tensor of another type, which would make the library run on its own buffer."""
    expected = (np.dtype(port.element_type.to_dtype()), tuple(port.shape))
    if expected != (array.dtype, array.shape):
        raise ValueError(
            f"openvino: {port.any_name} is {expected[0]}{list(expected[1])}, "
            f"the buffer {array.dtype}{list(array.shape)}"
        )


def _writeable(array: np.ndarray) -> np.ndarray:
    """The same memory without NumPy's write protection: the library shares no protected array, not even
    one that it only reads."""
    if array.flags.writeable:
        return array
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    return np.ctypeslib.as_array(memory).view(array.dtype).reshape(array.shape)


def _core() -> Any:
    """The library's core, one for the life of the process.

    A core that is freed with its models frees what others use (OpenVINO 2026.4): data that a thread that has run a
    model cleans up at its end, and the stack on which signals are handled. Either is a crash, the first a rare one.
    """
    with _MAKING:
        return _made_core()


@cache
def _made_core() -> Any:
    # Importing openvino reports the import over the network, unless its reporting package is missing. None
    # stands for a missing module; another part of the program that has imported it already is left alone.
    if "openvino" not in sys.modules:
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    if level():
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _LEVELS[level()])
    import openvino

    core = openvino.Core()
    # Not freed at the interpreter's end either: threads end just then.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))
    return core


def _config(target: Target, variant: Variant) -> dict[str, str]:
    if variant.name == AS_IT_COMES:
        config = {"INFERENCE_NUM_THREADS": str(target.threads)}
        # The library detects the processor itself, and so ignores a level to which it is held.
        held = bool(level()) and not this_machine().computes_in(Arithmetic.BFLOAT16)
        return {**config, "INFERENCE_PRECISION_HINT": "f32"} if held else config
    config = {
        "INFERENCE_PRECISION_HINT": _HINTS[variant.arithmetic],
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(target.threads),
        "ENABLE_CPU_PINNING": "YES" if own_cores(target.threads) else "NO",
    }
    if variant.arithmetic is Arithmetic.FLOAT32:
        # Otherwise products by weights that the file has in int8 round the other side to int8 too, group by group.
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"
    return config
