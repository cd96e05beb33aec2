"""Each library through its own API, as its documentation shows it.

What the runtime is compared with. Nothing here uses the runtime or the backends of collage_evo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]
Native = Callable[[Arrays], list[np.ndarray]]


def open_native(backend: str, path: Path, threads: int) -> Native:
    """``path``: an ONNX file (ONNX Runtime, OpenVINO), or the directory of a region compiled by ``backend``."""
    return {"onnxruntime": _onnxruntime, "openvino": _openvino, "ncnn": _ncnn, "tvm": _tvm}[backend](path, threads)


def open_bound(backend: str, path: Path, threads: int, inputs: Arrays, outputs: Arrays) -> Callable[[], object]:
    """ONNX Runtime's or OpenVINO's own call on buffers that are bound beforehand."""
    if backend == "onnxruntime":
        session = onnxruntime_session(path, threads)
        binding = session.io_binding()
        for bind, values, arrays in (
            (binding.bind_input, session.get_inputs(), inputs),
            (binding.bind_output, session.get_outputs(), outputs),
        ):
            for value, array in zip(values, arrays, strict=True):
                bind(value.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return lambda: session.run_with_iobinding(binding)
    import openvino

    request = openvino_model(path, threads).create_infer_request()
    for setter, arrays in ((request.set_input_tensor, inputs), (request.set_output_tensor, outputs)):
        for index, array in enumerate(arrays):
            setter(index, openvino.Tensor(array, shared_memory=True))
    return lambda: request.infer(share_outputs=True)


def _one(path: Path, suffix: str) -> Path:
    return path if path.is_file() else next(path.glob(f"*{suffix}"))


def onnxruntime_session(path: Path, threads: int, optimised: bool = True) -> Any:
    """A session with the library's defaults, but for its threads; with ``optimised=False`` no optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(_one(path, ".onnx")), options, providers=["CPUExecutionProvider"])


def _onnxruntime(path: Path, threads: int) -> Native:
    session = onnxruntime_session(path, threads)
    names = [value.name for value in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def openvino_model(path: Path, threads: int, precision: str = "f32") -> Any:
    """A compiled model; with an empty ``precision`` in the one that the library chooses."""
    import openvino

    core = openvino.Core()
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": str(threads)}
    if precision:
        config["INFERENCE_PRECISION_HINT"] = precision
    if path.is_file():
        return core.compile_model(str(path), "CPU", config)
    parts = sorted(path.glob("*.blob*"))
    return core.import_model(b"".join(part.read_bytes() for part in parts), "CPU", config)


def _openvino(path: Path, threads: int) -> Native:
    compiled = openvino_model(path, threads)

    def run(arrays: Arrays) -> list[np.ndarray]:
        results = compiled(list(arrays))
        return [results[port] for port in compiled.outputs]

    return run


def _ncnn(path: Path, threads: int) -> Native:
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.load_param(str(_one(path, ".param")))
    net.load_model(str(_one(path, ".bin")))

    def run(arrays: Arrays) -> list[np.ndarray]:
        extractor = net.create_extractor()
        for index, array in enumerate(arrays):
            # A batch of one has no axis of its own there; a layer may work in place on what it is given.
            extractor.input(f"in{index}", ncnn.Mat(array[0]).clone())
        return [np.array(extractor.extract(f"out{k}")[1])[np.newaxis] for k in range(len(net.output_names()))]

    return run


def _tvm(path: Path, threads: int) -> Native:
    import os

    os.environ["TVM_NUM_THREADS"] = str(threads)
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(str(_one(path, ".so"))), tvm.cpu())

    def run(arrays: Arrays) -> list[np.ndarray]:
        result = machine["main"](*map(tvm.runtime.tensor, arrays))
        single = hasattr(result, "numpy")
        return [result.numpy()] if single else [part.numpy() for part in result]

    return run
