"""Programs of which the fake device runs some pieces, and runs of what a library loaded."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from collage_evo.backends.base import Target
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.program import Program
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceArray, DeviceExecutable
from collage_evo_cuda.dlpack import CPU
from stand_in import host_view

CUDA = Target("cuda", 1)
DEVICE, PLAIN, HOST = ("fakegpu", "default"), ("fakegpu", "plain"), ("onnxruntime", "default")
Engine = tuple[str, str]


def placed(model: onnx.ModelProto, cache: Path, *engines: Engine) -> Program:
    """Each operator of ``model`` as a region of its own, the engines in turn."""
    graph = build_graph(model)
    regions = (Region(1 << i, *engines[i % len(engines)]) for i in range(len(graph.nodes)))
    return Compiler(CUDA, PieceCache(cache, 2**30)).placement(graph, Placement(tuple(regions)))


def hosted(array: np.ndarray) -> DeviceArray:
    """What a device gives whose memory is the host's."""
    return DeviceArray(array.ctypes.data, array.shape, str(array.dtype), (CPU, 0), 0, array)


def largest_error(device: Device, loaded: DeviceExecutable, model: onnx.ModelProto) -> float:
    """Of the outputs of ``model`` in two runs on random inputs: as they are, and from a capture."""
    session, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng(1)
    sides = session.get_inputs(), session.get_outputs()
    given, made = (
        [device.arena(4 * int(np.prod(value.shape)))(0, value.shape, "float32") for value in side] for side in sides
    )
    call, errors = loaded.bind(given, made), []
    for run in (call, device.capture(call)):
        feeds = {value.name: rng.uniform(-1, 1, value.shape).astype(np.float32) for value in sides[0]}
        for array, feed in zip(given, feeds.values(), strict=True):
            device.copy_in(array, feed)
        run()
        device.synchronise()
        for array, right in zip(made, session.run(None, feeds), strict=True):
            errors.append(float(np.linalg.norm(host_view(array) - right) / np.linalg.norm(right)))
    return max(errors)
