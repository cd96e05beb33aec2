"""A backend of one's own in 40 lines: elementwise operators by NumPy, searched beside all the others.

    python examples/own_backend.py

Shows the five methods that a backend has, and an answer that uses it where it is fast: for Asinh, NumPy has vector
instructions. A library of one's own is wrapped the same way: numpy_backend/ is a package that is found by itself once
it is installed, and docs/add_a_backend.md explains more.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import collage_evo
from collage_evo.backends.base import YES, Backend, BuildFailure, Built, Probe, no
from collage_evo.backends.registry import register_backend
from collage_evo.patterns.language import GraphPattern

UFUNCS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Tanh": np.tanh, "Exp": np.exp, "Asinh": np.arcsinh}


class NumpyBackend(Backend):
    name = "numpy"

    def probe(self) -> Probe:
        return Probe(True, np.__version__)

    def patterns(self) -> tuple[GraphPattern, ...]:
        return (GraphPattern("single", lambda op: op.any_of(*UFUNCS)(...)),)

    def supports_node(self, graph: Any, node: Any) -> Any:
        types = {graph.tensors[name].dtype for name in (*node.inputs, *node.outputs)}
        return YES if node.op_type in UFUNCS and types == {"float32"} else no(f"not {node.op_type} of {types}")

    def build(self, model: Any, target: Any, variant: Any, workdir: Any) -> Built | BuildFailure:
        if strange := {node.op_type for node in model.graph.node} - set(UFUNCS):  # somebody's whole model, say
            return BuildFailure(f"numpy has no {', '.join(sorted(strange))}")
        onnx.save(model, workdir / "piece.onnx")
        return Built(("piece.onnx",))

    def load(self, workdir: Any, target: Any, variant: Any, inputs: Any, outputs: Any) -> Any:
        return Piece(onnx.load(workdir / "piece.onnx").graph)


class Piece:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph, self.constants = graph, {t.name: numpy_helper.to_array(t) for t in graph.initializer}

    def bind(self, inputs: Any, outputs: Any) -> Any:
        given = [value.name for value in self.graph.input if value.name not in self.constants]
        values = {**self.constants, **dict(zip(given, inputs, strict=True))}
        made, calls = dict(zip([value.name for value in self.graph.output], outputs, strict=True)), []
        for node in self.graph.node:
            read, name = [values[name] for name in node.input], node.output[0]
            shape = np.broadcast_shapes(*(array.shape for array in read))
            values[name] = made.get(name, np.empty(shape, np.float32))
            calls.append(partial(UFUNCS[node.op_type], *read, out=values[name]))
        return lambda: [call() for call in calls]


MODEL = """<ir_version: 10, opset_import: ["": 18]> stretch (float[1, 1, 1024, 1024] x) => (float[1, 1, 512, 512] y)
<float[1] gain = {20.0}, float[1] scale = {0.27}> {
    binned = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    bright = Mul(binned, gain)  bent = Asinh(bright)  y = Mul(bent, scale)
}"""
"""Faint stars made visible: bins the picture of a telescope, and compresses its range."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    from own_backend import NumpyBackend as importable  # the processes that measure import it by this name

    register_backend(importable)
    model, names = onnx.parser.parse_model(MODEL), ["onnxruntime", "numpy"]
    result = collage_evo.optimize(model, backends=names, effort=args.effort, precision="exact")
    print(result)


if __name__ == "__main__":
    main()
