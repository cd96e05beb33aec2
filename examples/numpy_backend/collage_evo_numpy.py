"""Elementwise operators by NumPy, as a sample of a backend: takes a region's model, gives calls of ufuncs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import YES, Backend, BuildFailure, Built, Executable, Probe, Support, Target, no
from collage_evo.backends.variants import Variant
from collage_evo.graph.ir.values import write_arrays

if TYPE_CHECKING:
    import onnx

    from collage_evo.graph.ir.graph import Graph, Node, Tensor
    from collage_evo.patterns.language import Ops, Pattern, Value

UFUNCS: Mapping[str, np.ufunc] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Tanh": np.tanh},
    **{"Abs": np.absolute, "Neg": np.negative, "Sqrt": np.sqrt, "Exp": np.exp, "Relu": np.maximum},
}
OLDEST_OPSET = 14
"""From here on these operators are what they are today."""
_PROGRAM, _CONSTANTS = "program.json", "constants.npz"


def single(op: Ops) -> Value:
    """Each operator on its own."""
    return op.any_of(*UFUNCS)(...)


def elementwise(op: Ops) -> Value:
    """Two to six operators, each of which reads the one before."""
    from collage_evo.patterns.language import chain

    return chain(lambda x: op.any_of(*UFUNCS)(..., x, ...), single(op), most=5)


class NumpyBackend(Backend):
    """One thread, float32; each operator is one pass over its tensors."""

    name: ClassVar[str] = "numpy"

    def probe(self) -> Probe:
        return Probe(True, np.__version__)

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.language import GraphPattern

        return (GraphPattern("single", single), GraphPattern("chain", elementwise))

    def supports_node(self, graph: Graph, node: Node) -> Support:
        if node.op_type not in UFUNCS or node.domain:
            return no(f"{node.op_type} is not among {', '.join(sorted(UFUNCS))}")
        for name in (*node.inputs, *node.outputs):
            if graph.tensors[name].dtype != "float32":
                return no(f"tensor {name} is {graph.tensors[name].dtype}; only float32 is taken")
        return YES

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        """The model may be anything: a region that ``supports_node`` allowed, or somebody's whole model."""
        from onnx import numpy_helper

        opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
        if opset < OLDEST_OPSET:
            return BuildFailure(f"numpy: opset {opset} is older than {OLDEST_OPSET}")
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        inputs = [value.name for value in model.graph.input if value.name not in constants]
        known = {*inputs, *constants}
        steps = []
        for node in model.graph.node:
            if node.op_type not in UFUNCS or node.domain:
                return BuildFailure(f"numpy: {node.op_type} is not among {', '.join(sorted(UFUNCS))}")
            if not known.issuperset(node.input):
                return BuildFailure(f"numpy: nobody makes an input of {node.op_type}")
            known.update(node.output)
            steps.append((node.op_type, list(node.input), node.output[0]))
        outputs = [value.name for value in model.graph.output]
        if not {made for _, _, made in steps}.issuperset(outputs):
            return BuildFailure("numpy: an output is an input or a constant")
        write_arrays(workdir / _CONSTANTS, constants)
        (workdir / _PROGRAM).write_text(json.dumps({"inputs": inputs, "outputs": outputs, "steps": steps}))
        return Built((_PROGRAM, _CONSTANTS))

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable:
        with np.load(workdir / _CONSTANTS) as constants:
            return _Loaded(json.loads((workdir / _PROGRAM).read_text()), dict(constants))


class _Loaded:
    def __init__(self, program: Any, constants: Mapping[str, np.ndarray]) -> None:
        self._program = program
        self._constants = constants

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        """Results go straight into the caller's buffers; what lies in between is allocated here, once."""
        program = self._program
        values = dict(self._constants)
        values.update(zip(program["inputs"], inputs, strict=True))
        given = dict(zip(program["outputs"], outputs, strict=True))
        calls = []
        for op_type, names, made in program["steps"]:
            operands = [values[name] for name in names]
            if op_type == "Relu":
                operands.append(np.zeros((), np.float32))
            shape = np.broadcast_shapes(*(operand.shape for operand in operands))
            values[made] = given[made] if made in given else np.empty(shape, np.float32)
            calls.append(partial(UFUNCS[op_type], *operands, out=values[made]))
        return partial(_run, calls)


def _run(calls: Sequence[Callable[[], Any]]) -> None:
    for call in calls:
        call()
