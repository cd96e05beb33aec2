"""The ONNX Runtime backend: sessions bound to the caller's buffers."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from operator import itemgetter
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
    probe_distribution,
    repeatable,
    require_borders,
    returns_failures,
    written_variants,
)
from collage_evo.backends.onnxruntime.int8 import CALIBRATED_INT8, DYNAMIC_INT8
from collage_evo.backends.onnxruntime.plain import ROUNDED_BLOCKS, UNOPTIMISED, OnnxRuntimePlain, session_settings
from collage_evo.backends.onnxruntime.plain.piece import session_options
from collage_evo.backends.onnxruntime.rules import refusal
from collage_evo.backends.plain import PlainFiles
from collage_evo.backends.profiled import Kernel, KernelsOfRuns, KernelTime, kernel_times, runs_within
from collage_evo.backends.variants import AS_IT_COMES, DEFAULT, Arithmetic, Variant
from collage_evo.digests import remembers
from collage_evo.graph.ir.elements import EXTENDED, dtype_named, is_packed, onnx_name, pack, packed_bytes, unpack
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, Tensor, members
from collage_evo.graph.reference.ort_values import all_numpy, run_session
from collage_evo.multimap import multimap
from collage_evo.precision.quantise.marks import heavy_in_int8, written_in

if TYPE_CHECKING:
    import onnx


_PROVIDER = "CPUExecutionProvider"
_KERNEL_TIME = "_kernel_time"
"""End of a kernel's name in profiles."""
FEW = 10
"""Products to a convolution from which the layout of convolutions is not tried. Chosen; ViT-B/16 has 73, and took 500
and 501 ms (Xeon, AVX2, 1 thread)."""
FILES = {"default": "model.onnx", "nchw": "model.nchw.onnx", "int8-dynamic": "model.dynamic.onnx"}
"""Names of the model, by the layout of its convolutions, or the quantisation of its products."""
_INTEGER = frozenset({"QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"})
"""Operators into which the library fuses heavy ones between quantisers."""

_Kernel = tuple[int, int, Mapping[str, Sequence[str]]]
"""First and last operator-set version, and the types allowed for each type variable."""


class OnnxRuntimeBackend(Backend):
    """Sessions with all graph optimisations, sequential, with ``target.threads`` threads inside an operator.

    The last level of optimisation runs 2-D convolutions in a layout of channel blocks (NCHWc) and converts at the
    border of a piece. The variant ``nchw`` stops one level before it; ``unoptimised`` disables all levels, for models
    on which an optimisation is wrong (as the fusion of a layer normalisation written out with ``keepdims=0`` is in
    ONNX Runtime 1.32, onnxruntime #30513). Between quantisers convolutions and products run in int8; the variant
    ``int8-dynamic`` is for products whose ranges are found at run time, ``int8-rows`` for those with a range for each
    row, ``int8-blocks`` for those that are bounded by reading their weights. ``rounded-blocks`` is for whole models
    with weights in blocks (QDQ), and rounds activations there, as the library does by default.
    """

    name: ClassVar[str] = "onnxruntime"
    title: ClassVar[str] = "ONNX Runtime"
    extra: ClassVar[str] = "onnxruntime"
    maps_weights: ClassVar[bool] = True
    execution_providers: ClassVar[Mapping[str, str]] = {"cpu": _PROVIDER}
    variants: ClassVar[tuple[Variant, ...]] = (
        DEFAULT,
        Variant("nchw"),
        Variant("int8", Arithmetic.INT8, base="default", int8_form=CALIBRATED_INT8),
        Variant("int8-all", Arithmetic.INT8, base="default", int8_form=CALIBRATED_INT8, everything=True),
        Variant("int8-dynamic", Arithmetic.INT8, int8_form=DYNAMIC_INT8),
        Variant("int8-rows", Arithmetic.INT8_ROWS, base="default"),
        Variant("int8-blocks", Arithmetic.INT8_BLOCKS, base="default"),
        ROUNDED_BLOCKS,
        UNOPTIMISED,
    )
    as_it_comes: ClassVar[Variant] = Variant(AS_IT_COMES)
    refuses_shapes: ClassVar[bool] = True
    portable: ClassVar[bool] = True
    gives_reference: ClassVar[bool] = True

    def __init__(self, cores: Sequence[int] = ()) -> None:
        self._cores = tuple(cores)

    def keeping_to(self, cores: Sequence[int]) -> Backend:
        return type(self)(cores)

    def probe(self) -> Probe:
        probe = probe_distribution("onnxruntime", "onnxruntime")
        with_gpu = probe_distribution("onnxruntime-gpu", "")
        return probe if probe.available or not with_gpu.available else with_gpu

    def supports_node(self, graph: Graph, node: Node) -> Support:
        if node.domain not in ("", "ai.onnx"):
            return YES  # composites, contrib and custom operators: the reference has run them already
        verdict = repeatable(graph, node)
        if not verdict:
            return verdict
        if reason := refusal(graph, node):
            return no(reason)
        import onnx

        try:
            schema: Any = onnx.defs.get_schema(node.op_type, graph.opset, "")
        except onnx.defs.SchemaError:
            return no(f"{node.op_type} is no operator of opset {graph.opset}")
        kernels = [k for k in _kernels().get(node.op_type, ()) if k[0] <= schema.since_version <= k[1]]
        if not kernels:
            inlined = schema.has_function
            return YES if inlined else no(f"no kernel for {node.op_type} of opset {graph.opset}")
        types = _bound_types(graph, node, schema)
        # Where there is no kernel for float16, the library computes in float32 between casts.
        wider = {variable: kind.replace("(float16)", "(float)") for variable, kind in types.items()}
        if any(_fits(kernel, types) or _fits(kernel, wider) for kernel in kernels):
            return YES
        return no(f"no kernel for {node.op_type} on {', '.join(sorted(set(types.values())))}")

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """A single convolution, with its epilogue or without, may not win back the cost of the layout conversion.

        Measured on AVX-512, one thread: 1x1 with few channels on large images take 0.74 to 0.95 times as long
        in ``nchw``, others and all blocks of several convolutions up to 5 times. Grouped ones keep their
        layout, or are depthwise and lose.
        """
        from collage_evo.graph.ir.operators import ELEMENTWISE

        chosen = [graph.nodes[index] for index in members(nodes)]
        convolutions = [node for node in chosen if node.op_type == "Conv"]
        lone = len(convolutions) == 1 and all(node.op_type in {"Conv", *ELEMENTWISE} for node in chosen)
        layouts = self.variants[:2] if lone and _may_be_blocked(graph, convolutions[0]) else self.variants[:1]
        return (*layouts, *written_variants(self.variants, graph, nodes))

    def guards(self, variant: Variant) -> bool:
        return True

    def runs_any_model(self, variant: Variant) -> bool:
        return True

    def declines(self, variant: Variant) -> str:
        return lacks_instructions(variant.arithmetic)

    def plain_files(self) -> PlainFiles:
        return OnnxRuntimePlain(FILES)

    @returns_failures()
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        from collage_evo.graph.ir.weights import HEAVY_BYTES, all_weight_bytes
        from collage_evo.graph.load.files import save_model

        if variant.name == "nchw" and (why := _without_convolutions(model)):
            return BuildFailure(why, needless=True)
        if variant == ROUNDED_BLOCKS and not any(map(_reads_blocks, model.graph.node)):
            return BuildFailure("without weights in blocks, rounded-blocks is no other than default", needless=True)
        path = workdir / FILES.get(variant.name, FILES["default"])
        save_model(model, path, apart=True)
        by_rows = len(written_in(model, Arithmetic.INT8_ROWS))
        if heavy_in_int8(model) and _integer_operators(path, target, variant) <= by_rows:
            return BuildFailure("onnxruntime: between quantisers it runs none of the heavy operators in int8")
        if all_weight_bytes(model) < HEAVY_BYTES:  # one that takes seconds to load fails where it is loaded next
            self.open_session(path, target, variant)
        return Built(tuple(sorted(file.name for file in workdir.iterdir())))

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> Executable:
        path, open_inputs = workdir / FILES.get(variant.name, FILES["default"]), not all(t.static for t in inputs)
        session = _session(path, target, variant, cores=self._cores, open_inputs=open_inputs)
        check_borders(session, inputs, outputs)
        return _Loaded(session)

    def open_session(self, path: Path, target: Target, variant: Variant) -> Any:
        """A session of the library on the model at ``path``."""
        return _session(path, target, variant, cores=self._cores)

    def profiles(self, variant: Variant) -> bool:
        return variant.on_host and variant.name != AS_IT_COMES

    def profile(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[np.ndarray], seconds: float
    ) -> Sequence[KernelTime]:
        loaded, kernels_of = self.load_profiled(workdir, target, variant)
        runs = runs_within(seconds, partial(loaded.run, inputs))
        kernels = kernels_of(runs)
        times_ms = multimap((kernel.label, kernel.us / 1e3) for kernel in chain.from_iterable(kernels))
        return kernel_times(times_ms, len(kernels))

    def load_profiled(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors = ()
    ) -> tuple[_Loaded, KernelsOfRuns]:
        path, open_inputs = workdir / FILES.get(variant.name, FILES["default"]), not all(t.static for t in inputs)
        directory = tempfile.TemporaryDirectory()
        profile = Path(directory.name) / "kernels"
        session = _session(path, target, variant, cores=self._cores, profile=profile, open_inputs=open_inputs)
        return _Loaded(session), partial(_profiled_kernels, session, directory)


class _Loaded:
    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [value.name for value in session.get_outputs()]
        self._usual = all_numpy(session)

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        binding = self._session.io_binding()
        given, made = ([(array, _held(array)) for array in arrays] for arrays in (inputs, outputs))
        for name, (array, held) in zip(self._inputs, given, strict=True):
            binding.bind_input(name, "cpu", 0, _element(array.dtype), array.shape, held.ctypes.data)
        for name, (array, held) in zip(self._outputs, made, strict=True):
            binding.bind_output(name, "cpu", 0, _element(array.dtype), array.shape, held.ctypes.data)
        run = partial(self._session.run_with_iobinding, binding)
        into, out_of = ([pair for pair in pairs if is_packed(pair[0].dtype)] for pairs in (given, made))
        return partial(_run_packed, run, into, out_of) if into or out_of else run

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        feeds = dict(zip(self._inputs, inputs, strict=True))
        if self._usual:  # found once, as the names are: the library makes a new list of its outputs on each access
            outputs: list[Any] = self._session.run(self._outputs, feeds)
            return outputs
        return run_session(self._session, feeds)


def check_borders(session: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Make sure that a session takes ``inputs`` and gives ``outputs``.

    Raises:
        InputError: it does not.
    """
    for values, tensors in ((session.get_inputs(), inputs), (session.get_outputs(), outputs)):
        require_borders("onnxruntime", list(map(_type_of, values)), tensors)


def _type_of(value: Any) -> tuple[str, list[int] | None]:
    """Dtype and shape of a session's input or output; the session does not distinguish an open rank from rank 0."""
    dtype = dtype_named(value.type.removeprefix("tensor(").removesuffix(")"))
    return dtype, [size if isinstance(size, int) else -1 for size in value.shape] or None


def _held(array: np.ndarray) -> np.ndarray:
    """The buffer that the library uses: the caller's, or its own for elements that it holds packed."""
    return np.zeros(packed_bytes(array.dtype, array.size), np.uint8) if is_packed(array.dtype) else array


def _run_packed(
    run: Callable[[], None],
    inputs: Sequence[tuple[np.ndarray, np.ndarray]],
    outputs: Sequence[tuple[np.ndarray, np.ndarray]],
) -> None:
    for array, unpacked in inputs:
        unpacked[:] = pack(array)
    run()
    for array, unpacked in outputs:
        unpack(unpacked, array)


def _element(dtype: np.dtype) -> Any:
    """The element type for the library's bindings: NumPy's, else ONNX's number."""
    return EXTENDED[dtype.name].number if dtype.name in EXTENDED else dtype.type


def _integer_operators(path: Path, target: Target, variant: Variant) -> int:
    """How many convolutions and products the library's optimised graph computes on integers."""
    import onnx

    with tempfile.TemporaryDirectory() as directory:
        optimised = Path(directory) / "optimised.onnx"
        _session(path, target, variant, optimised)
        optimised_model = onnx.load(optimised, load_external_data=False)
    return sum(node.op_type in _INTEGER for node in optimised_model.graph.node)


def _session(
    path: Path,
    target: Target,
    variant: Variant,
    optimised: Path | None = None,
    cores: Sequence[int] = (),
    profile: Path | None = None,
    open_inputs: bool = False,
) -> Any:
    """A session that writes its optimised graph to ``optimised`` and its kernel times to ``profile``, if given.

    ``cores``: of its threads, if they are fixed. ``open_inputs``: whether inputs have sizes that follow the request.
    """
    import onnxruntime as ort

    if variant.name == AS_IT_COMES:
        options = ort.SessionOptions()
        options.intra_op_num_threads = target.threads
        options.log_severity_level = 4
        return _open(path, options)
    options = session_options(session_settings(target.threads, variant, open_inputs))
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    if cores[1:]:  # the library numbers cores from 1, and the caller is none of its threads
        affinities = ";".join(str(core + 1) for core in cores[1:])
        options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
    return _open(path, options)


def _open(path: Path, options: Any) -> Any:
    """A session on the model at ``path``, with a copy of its external weights.

    By itself the library maps their files, and whoever wrote into one would change the results of open sessions. The
    processes of a run map them: nobody writes into its files, and they load gigabytes again and again.
    """
    import onnxruntime as ort

    files = [file for file in path.parent.glob(f"{path.name}.data*") if file.is_file() and file.stat().st_size]
    if files and not remembers() and not options.optimized_model_filepath:
        contents = [np.memmap(file, np.uint8, "r") for file in files]  # read until there is a session
        sizes = [content.nbytes for content in contents]
        options.add_external_initializers_from_files_in_memory([file.name for file in files], contents, sizes)
    return ort.InferenceSession(str(path), options, providers=[_PROVIDER])


def _profiled_kernels(session: Any, directory: tempfile.TemporaryDirectory[str], runs: int) -> list[list[Kernel]]:
    """The kernels of each of the last ``runs`` of a session that writes its profile into ``directory``, by the names
    of their nodes in the optimised graph; of fewer runs where these have more than a million kernels.

    Those in bodies of control flow are part of its time.
    """
    with directory:
        events = json.loads(Path(session.end_profiling()).read_text())
    began = [event["ts"] for event in events if event["name"] == "model_run"]
    called = sorted((one for one in events if one["name"].endswith(_KERNEL_TIME)), key=itemgetter("ts"))
    kernels = multimap((bisect(began, one["ts"]), one) for one in _outside_bodies(called))
    return [[_kernel(one, us) for one in kernels.get(run, ())] for run, us in enumerate(began, 1)][-runs:]


def _outside_bodies(called: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The events of ``called``, by time, without those that begin while an operator with bodies runs."""
    until = 0
    for event in called:
        if event["ts"] >= until:
            yield event
            if event["args"]["op_name"] in ("If", "Loop", "Scan"):
                until = event["ts"] + event["dur"]


def _kernel(event: Mapping[str, Any], began_us: float) -> Kernel:
    """The kernel of an event in a profile; its precision is the type of its first input, unless it converts that."""
    kind, types = event["args"]["op_name"], [*chain.from_iterable(event["args"].get("input_type_shape", ()))]
    precision = "int8" if kind in _INTEGER else dtype_named(next(iter(types), "")).removeprefix("u")
    return Kernel(
        event["name"].removesuffix(_KERNEL_TIME), kind, event["dur"], precision, event["ts"] - began_us
    )


def _without_convolutions(model: onnx.ModelProto) -> str:
    """Why the layout of convolutions makes no difference to ``model``; empty if it may."""
    kinds = Counter(node.op_type for node in model.graph.node)
    convolutions, products = kinds["Conv"], kinds["MatMul"] + kinds["Gemm"]
    if not convolutions:
        return "without convolutions, nchw is no other than default"
    if FEW * convolutions < products:  # a vision transformer's single one
        return f"with {convolutions} convolutions to {products} products, nchw is hardly other than default"
    return ""


def _reads_blocks(node: onnx.NodeProto) -> bool:
    return node.op_type == "DequantizeLinear" and any(one.name == "block_size" and one.i for one in node.attribute)


def _may_be_blocked(graph: Graph, convolution: Node) -> bool:
    """Whether the layout pass may change ``convolution``: 2-D, in one group."""
    planar = len(graph.tensors[convolution.inputs[0]].shape) == 4
    return planar and convolution.attributes.get("group", 1) == 1


@cache
def _kernels() -> dict[str, tuple[_Kernel, ...]]:
    """The CPU provider's kernels for standard operators, by operator."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    standard = (one for one in native.get_all_opkernel_def() if (one.provider, one.domain) == (_PROVIDER, ""))
    kernels_of = multimap((one.op_name, (*one.version_range, one.type_constraints)) for one in standard)
    return {op: tuple(kernels) for op, kernels in kernels_of.items()}


def _bound_types(graph: Graph, node: Node, schema: Any) -> dict[str, str]:
    """What each type variable of the operator stands for in ``node``; also by formal parameter name."""
    types: dict[str, str] = {}
    for formals, actuals in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        for position, name in enumerate(actuals):
            if name and formals:
                formal = formals[min(position, len(formals) - 1)]
                types[formal.type_str] = types[formal.name] = f"tensor({onnx_name(graph.tensors[name].dtype)})"
    return types


def _fits(kernel: _Kernel, types: Mapping[str, str]) -> bool:
    return all(types[variable] in allowed for variable, allowed in kernel[2].items() if variable in types)
