"""Would integers at the border between two pieces pay? Two convolutions in int8, each a session of its own.

    python benchmarks/int8_borders.py int8_borders.json [--rounds 15] [--seconds 0.2]

The border is float32, as pieces have it, or the integers that the second convolution computes with. One thread, both
pieces bound to buffers beforehand, sides in another order each round. Times are processor time, and a turn counts
with the 10 % quantile of its own, so that others at work on the machine disturb little. Printed are ms of both pieces
with each border, the time with integers over that with float32 (median over the rounds, and their middle 80 %), how
far the outputs of the two differ, and in what OpenVINO ran its convolutions.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from native import onnxruntime_session, openvino_model
from onnx import TensorProto

from collage_evo.graph.reference import relative_error
from collage_evo.models.builder import Builder

SHAPES = ((64, 56, 3), (64, 56, 1), (128, 28, 3), (256, 14, 3), (256, 14, 1))
"""Channels, height and width, and kernel of both convolutions."""
ONNXRUNTIME, OPENVINO = LIBRARIES = "onnxruntime", "openvino"
FLOAT32, INTEGERS = "float32", "integers"
SCALE = 0.02
"""Of all activations, so that the second piece rounds nothing that the first has not; none of them is negative."""


@dataclass(frozen=True)
class Piece:
    """One convolution of a library: whether it takes and gives integers."""

    library: str
    shape: tuple[int, int, int]
    takes: bool
    gives: bool

    def model(self, seed: int) -> onnx.ModelProto:
        """Its file, with quantisers where the library wants them."""
        channels, size, kernel = self.shape
        net, rng = Builder("piece"), np.random.default_rng(seed)
        x = net.input("x", (1, channels, size, size), TensorProto.UINT8 if self.takes else TensorProto.FLOAT)
        if not self.takes:
            x = net.op("QuantizeLinear", x, *_scale(net))
        x = net.op("DequantizeLinear", x, *_scale(net))
        if self.takes and self.library == OPENVINO:  # it runs float32 without quantisers inside
            x = net.op("DequantizeLinear", net.op("QuantizeLinear", x, *_scale(net)), *_scale(net))
        integers = rng.integers(-127, 128, (channels, channels, kernel, kernel)).astype(np.int8)
        scales = np.full(channels, 0.6 / (127 * kernel * channels**0.5), np.float32)
        parts = net.const(integers), net.const(scales), net.const(np.zeros(channels, np.int8))
        weights = net.op("DequantizeLinear", *parts, axis=0)
        x = net.op("Relu", net.op("Conv", x, weights, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4))
        if self.gives:
            return net.model(net.op("QuantizeLinear", x, *_scale(net)))
        if self.library == ONNXRUNTIME:  # it runs float32 where the output is not rounded
            x = net.op("DequantizeLinear", net.op("QuantizeLinear", x, *_scale(net)), *_scale(net))
        return net.model(x)


def _scale(net: Builder) -> tuple[str, str]:
    return net.const(np.array(SCALE, np.float32)), net.const(np.array(0, np.uint8))


def bound(piece: Piece, path: Path, given: np.ndarray, made: np.ndarray) -> tuple[Callable[[], object], str]:
    """The piece's call on these buffers, and in what it runs as far as the library tells."""
    if piece.library == ONNXRUNTIME:
        session = onnxruntime_session(path, 1)
        binding = session.io_binding()
        names = session.get_inputs()[0].name, session.get_outputs()[0].name
        for bind, name, array in zip((binding.bind_input, binding.bind_output), names, (given, made), strict=True):
            bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return lambda: session.run_with_iobinding(binding), ""
    import openvino

    compiled = openvino_model(path, 1)
    request = compiled.create_infer_request()
    request.set_input_tensor(0, openvino.Tensor(given, shared_memory=True))
    request.set_output_tensor(0, openvino.Tensor(made, shared_memory=True))
    return lambda: request.infer(share_outputs=True), _precision(compiled)


def _precision(compiled: Any) -> str:
    told = (node.get_rt_info() for node in compiled.get_runtime_model().get_ops())
    kinds = ((one["layerType"].astype(str), one["runtimePrecision"].astype(str)) for one in told)
    return " ".join(precision for kind, precision in kinds if kind == "Convolution")


@dataclass(frozen=True)
class Side:
    """Two pieces one after the other, what they make, and buffers that have to live as long."""

    call: Callable[[], object]
    made: np.ndarray
    told: str
    others: tuple[np.ndarray, ...]


def side(libraries: tuple[str, str], shape: tuple[int, int, int], integers: bool, folder: Path) -> Side:
    """Both pieces on random inputs, with a border of ``integers`` or not."""
    channels, size, _ = shape
    image = np.random.default_rng(0).random((1, channels, size, size), np.float32) * np.float32(255 * SCALE)
    border = np.empty(image.shape, np.uint8 if integers else np.float32)
    made = np.empty(image.shape, np.float32)
    calls, told = [], []
    pieces = Piece(libraries[0], shape, False, integers), Piece(libraries[1], shape, integers, False)
    for seed, (piece, given, output) in enumerate(zip(pieces, (image, border), (border, made), strict=True)):
        path = folder / f"{seed}_{integers}.onnx"
        onnx.save(piece.model(seed), path)
        call, precision = bound(piece, path, given, output)
        calls.append(call)
        told.append(precision)
    return Side(lambda: [call() for call in calls], made, " ".join(filter(None, told)), (image, border))


def turns(sides: Mapping[str, Side], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Ms of each side in each round."""
    order, rng = list(sides), random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            found[name].append(_quick_ms(sides[name].call, seconds))
    return found


def _quick_ms(call: Callable[[], object], seconds: float) -> float:
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.process_time()
        call()
        times.append((time.process_time() - begin) * 1e3)
    return float(np.quantile(times, 0.1))


def told(
    libraries: Sequence[str], shape: Sequence[int], sides: Mapping[str, Side], ms: Mapping[str, list[float]]
) -> str:
    """A row of what came out."""
    ratios = np.array(ms[INTEGERS]) / np.array(ms[FLOAT32])
    low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
    off = relative_error(sides[INTEGERS].made, sides[FLOAT32].made).relative
    precisions = ", ".join(f"{name}: {one.told}" for name, one in sides.items() if one.told)
    return (
        f"{' -> '.join(libraries):26} {'x'.join(map(str, shape)):10} {np.median(ms[FLOAT32]):7.3f} "
        f"{np.median(ms[INTEGERS]):7.3f} ms  {middle:.3f} ({low:.3f} to {high:.3f})  differ {off:.1e}  {precisions}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn")
    options = parser.parse_args()
    rows = []
    for libraries, shape in product(product(LIBRARIES, LIBRARIES), SHAPES):
        with tempfile.TemporaryDirectory() as folder:
            sides = {name: side(libraries, shape, name == INTEGERS, Path(folder)) for name in (FLOAT32, INTEGERS)}
            turns(sides, 1, options.seconds)  # warm up
            ms = turns(sides, options.rounds, options.seconds)
        print(told(libraries, shape, sides, ms), flush=True)
        rows.append({"libraries": libraries, "shape": shape, "ms": ms})
        options.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
