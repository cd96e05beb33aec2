"""ONNX Runtime on a GPU: sessions of its CUDA provider, bound to the device's arrays.

No node may fall back to the CPU: sessions in which the library would do so are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import BuildFailure, Built, Target, Tensors
from collage_evo.backends.onnxruntime.backend import FILES, OnnxRuntimeBackend, check_borders
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.errors import InputError
from collage_evo.graph.ir.elements import EXTENDED
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo_cuda.device import DeviceArray, DeviceExecutable
from collage_evo_cuda.open import open_device
from collage_evo_cuda.requirements import lacks_arithmetic, lacks_gpu

if TYPE_CHECKING:
    import onnx

CUDA = "CUDAExecutionProvider"
_LEAST = (6, 0)


class OnnxRuntimeCudaBackend(OnnxRuntimeBackend):
    """Sessions of the CUDA provider."""

    execution_providers: ClassVar[Mapping[str, str]] = {"cuda": CUDA}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("cuda", device="cuda"),
        Variant("cuda-tf32", Arithmetic.TF32, "cuda"),
    )

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        return self.variants

    def guards(self, variant: Variant) -> bool:
        return False

    def runs_any_model(self, variant: Variant) -> bool:
        return True

    def declines(self, variant: Variant) -> str:
        return reason_against(variant)

    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        if reason := open_sizes(model):
            return BuildFailure(f"onnxruntime: {reason}")
        return super().build(model, target, variant, workdir)

    def open_session(self, path: Path, target: Target, variant: Variant) -> Any:
        return open_session(path, variant, stream=None)

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> DeviceExecutable:
        stream = open_device("cuda").stream
        session = open_session(workdir / FILES["default"], variant, stream)
        check_borders(session, inputs, outputs)
        return LoadedOnDevice(session, stream)


def reason_against(variant: Variant) -> str:
    """Why a variant for the GPU cannot be used here; empty if it can."""
    if reason := lacks_gpu(_LEAST, "ONNX Runtime's CUDA provider") or lacks_arithmetic(variant.arithmetic):
        return reason
    if CUDA in available_providers():
        return ""
    return f"ONNX Runtime is here without {CUDA}: pip install onnxruntime-gpu in place of onnxruntime"


@cache
def available_providers() -> tuple[str, ...]:
    """The execution providers that the installed ONNX Runtime was built with."""
    import onnxruntime

    return tuple(onnxruntime.get_available_providers())


def open_sizes(model: onnx.ModelProto) -> str:
    """Why a model cannot use arrays of the device: an input or output without a static shape. Empty if it can."""
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.tensor_type
        if not kind.HasField("shape") or not all(size.HasField("dim_value") for size in kind.shape.dim):
            return f"{value.name} has no static shape, and so no array on the device"
    return ""


def open_session(path: Path, variant: Variant, stream: int | None) -> Any:
    """A session whose work goes to ``stream``, or to its own where it is None.

    Raises:
        InputError: the library did not load the provider, or a part of the model would run on the CPU.
    """
    import onnxruntime

    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # loads CUDA's libraries from pip's folders
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    cuda = {
        "device_id": "0",
        "use_tf32": str(int(variant.arithmetic is Arithmetic.TF32)),
        # Shapes are static: each convolution tries its algorithms once, in its first run, and then uses the best.
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "cudnn_conv_use_max_workspace": "1",
    }
    if stream is not None:
        cuda["user_compute_stream"] = str(stream)
    session = onnxruntime.InferenceSession(str(path), options, providers=[(CUDA, cuda)], enable_fallback=0)
    if CUDA not in session.get_providers():
        raise InputError(f"onnxruntime: {CUDA} could not be loaded: install CUDA and cuDNN for it")
    return session


class LoadedOnDevice:
    """A session on the device. It is never captured: inside another's capture the library may end the process."""

    capturable = False

    def __init__(self, session: Any, stream: int) -> None:
        self._session, self._stream = session, stream
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [value.name for value in session.get_outputs()]

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
        import onnxruntime

        binding = self._session.io_binding()
        for name, array in zip(self._inputs, inputs, strict=True):
            binding.bind_input(name, "cuda", 0, self._element(array), array.shape, array.pointer)
        for name, array in zip(self._outputs, outputs, strict=True):
            binding.bind_output(name, "cuda", 0, self._element(array), array.shape, array.pointer)
        options = onnxruntime.RunOptions()
        # The caller waits for the stream, once for all work on it.
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        return partial(self._session.run_with_iobinding, binding, options)

    def _element(self, array: DeviceArray) -> Any:
        """The element type for the library's bindings."""
        if array.stream != self._stream:
            raise InputError("onnxruntime: the arrays are of another stream than the session")
        return EXTENDED[array.dtype].number if array.dtype in EXTENDED else np.dtype(array.dtype).type
