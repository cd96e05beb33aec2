"""Builds cases of the conformance suite for CUDA, and runs them on the stand-ins: one JSON line for each.

    python -m cuda_kernels.run_cases VARIANT [CASE ...]

in a process whose LD_LIBRARY_PATH begins with the folder of the stand-ins; without names, all that TVM takes.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

from collage_evo.backends.base import Built, Target
from collage_evo.graph.convert.read import build_graph
from collage_evo.testing.cases import CASES
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.dlpack import CUDA
from collage_evo_cuda.tvm import compiler, load
from collage_evo_cuda.tvm.backend import TvmCudaBackend
from cuda_kernels import HostCompiler

TARGET = Target("cuda", accelerator="Fake GPU, compute capability 9.0, CUDA 13.0")
STREAM = 0x5EED
_ALIGNMENT = 256


def run_case(model: onnx.ModelProto, variant: str, folder: Path) -> dict[str, Any]:
    """What was launched, and how far off the outputs are, relative to the largest number that was to come out."""
    backend = TvmCudaBackend()
    record = backend.variant(variant)
    with mock.patch.object(compiler, "find_compiler", return_value=HostCompiler(folder)):
        built = backend.build(model, TARGET, record, folder)
    if not isinstance(built, Built):
        return {"failure": built.reason}
    with mock.patch.object(load, "find_runtime", return_value=None):
        executable = backend.load(folder, TARGET, record, (), ())
    inputs = _inputs(model)
    expected = _expected(model, inputs)
    given = [_aligned(value) for value in inputs.values()]
    made = [_aligned(np.full_like(value, 7)) for value in expected]
    run = executable.bind([_on_device(a) for a in given], [_on_device(a) for a in made])  # type: ignore[arg-type]
    launched = _observed(run)
    pairs = zip(made, expected, strict=True)
    offs = (np.abs(m.astype(float) - e).max() / max(np.abs(e).max(), 1e-30) for m, e in pairs)
    return {"error": max(map(float, offs)), **launched}


def _observed(run: Callable[[], None]) -> dict[str, Any]:
    """Two calls, and what the second one asks of CUDA."""
    driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
    driver.fake_stream.restype = ctypes.c_void_p
    run()
    launches, memory = driver.fake_launches(), runtime.fake_memory_calls()
    run()
    streams = {driver.fake_stream(number) for number in range(launches, driver.fake_launches())}
    more = runtime.fake_memory_calls() - memory
    return {"launches": driver.fake_launches() - launches, "streams": sorted(streams), "memory_calls": more}


def _inputs(model: onnx.ModelProto) -> Mapping[str, np.ndarray]:
    random, graph = np.random.default_rng(1), build_graph(model)
    found = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        floating = tensor.dtype.startswith("float")
        values = random.standard_normal(tensor.shape) if floating else random.integers(0, 2, tensor.shape)
        found[name] = values.astype(tensor.dtype)
    return found


def _expected(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def _aligned(value: np.ndarray) -> np.ndarray:
    raw = np.zeros(value.nbytes + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    array = raw[begin : begin + value.nbytes].view(value.dtype).reshape(value.shape)
    array[...] = value
    return array


def _on_device(array: np.ndarray) -> DeviceArray:
    return DeviceArray(array.ctypes.data, array.shape, array.dtype.name, (CUDA, 0), STREAM, array)


def main(variant: str, *names: str) -> None:
    """See the module."""
    for name in names or CASES:
        model = CASES[name]()
        graph = build_graph(model)
        verdict = TvmCudaBackend().supports(graph, graph.all_nodes)
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_case(model, variant, Path(folder)) if verdict else {"declined": verdict.reason}
        print(json.dumps({"case": name, **outcome}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
