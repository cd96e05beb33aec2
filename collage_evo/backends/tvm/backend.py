"""The TVM backend: LLVM code run by the Relax virtual machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import (
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
from collage_evo.backends.checks import plain, probe_distribution, returns_failures
from collage_evo.backends.plain import PlainFiles
from collage_evo.backends.tuning import Tuner
from collage_evo.backends.tvm.compile import WEIGHTS, compile_module, cpu_target, lower_model, set_threads
from collage_evo.backends.tvm.plain import TvmPlain
from collage_evo.backends.tvm.plain.piece import load_library
from collage_evo.backends.tvm.rules import refusal
from collage_evo.backends.tvm.schedule import REVISION, schedule_module
from collage_evo.backends.tvm.tune import TvmTuner, apply_records
from collage_evo.backends.variants import DEFAULT, Arithmetic, Variant, plain_name
from collage_evo.errors import named_line
from collage_evo.graph.ir.graph import Graph, Node

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern

_FILE = "model.so"
_COMPILERS = ("g++", "clang++", "c++", "gcc", "clang", "cc")
_DTYPES = frozenset({"float32", "int64", "int32", "bool"})
_OPERATORS = frozenset(
    {
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool"),
        *("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "Softmax", "LRN"),
        *("BatchNormalization", "LayerNormalization", "Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "Elu"),
        *("HardSwish", "HardSigmoid", "Erf", "Add", "Sub", "Mul", "Div", "Sqrt", "Pow", "Exp"),
        *("Greater", "Where", "Cast", "Unsqueeze", "Squeeze"),
        *("Concat", "Split", "Slice", "Flatten", "Reshape", "Transpose", "Pad", "Resize", "Gather"),
    }
)
"""Operators that tests have shown to be correct. Not Sum: its import defeats the layout pass. Nor ArgMax: of nothing
but minus infinity it returns -1."""
_ALIGNMENT = 64
"""Bytes: generated code takes for granted that tensors begin at a multiple of this."""


class TvmBackend(Backend):
    """Whole regions, fused, and scheduled by a fixed rule or by tuning; images are laid out NHWC inside."""

    name: ClassVar[str] = "tvm"
    title: ClassVar[str] = "TVM"
    extra: ClassVar[str] = "tvm"
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT,)
    weights: ClassVar[str] = WEIGHTS

    def probe(self) -> Probe:
        probe = probe_distribution("apache-tvm", "tvm")
        if probe.available and find_linker() is None:
            reason = "TVM needs a C++ compiler to link what it builds: install g++ or clang"
            return Probe(False, probe.version, reason=reason)
        return replace(probe, version=f"{probe.version} schedules {REVISION}") if probe.available else probe

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.common import SINGLE
        from collage_evo.patterns.fusion import PostDominatorFusion
        from collage_evo.patterns.regions import Regions

        return (SINGLE, PostDominatorFusion(), Regions())

    def supports_node(self, graph: Graph, node: Node) -> Support:
        if node.op_type not in _OPERATORS:
            return no(f"{node.op_type} is not among the operators that TVM was found to compute right")
        verdict = plain(graph, node, _DTYPES)
        reason = refusal(graph, node) if verdict else ""
        return no(reason) if reason else verdict

    def known_wrong(self, graph: Graph, node: Node) -> str:
        return refusal(graph, node)

    def runs_on_after_fork(self, variant: Variant, threads: int) -> bool:
        return threads == 1

    def environment(self, target: Target) -> Mapping[str, str]:
        """The pool's threads yield their core 300 times and then sleep; by default 300,000 times."""
        return {"TVM_THREAD_POOL_SPIN_COUNT": "300"}

    def variant(self, name: str) -> Variant:
        """The variant of that name. Tuned ones have names with the digest of their records, and are not listed."""
        if plain_name(name) in {variant.name for variant in self.variants}:
            return super().variant(name)
        return Variant(name, device=self.variants[0].device)

    def tuner(self) -> Tuner:
        return TvmTuner()

    def plain_files(self) -> PlainFiles:
        return TvmPlain(_FILE)

    @returns_failures(named_line)
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        compiled_for = self.compiled_for(target)
        module = lower_model(model, compiled_for, variant.arithmetic is Arithmetic.FLOAT16, self.weights)
        if variant not in self.variants:
            module = apply_records(module, compiled_for, Path(target.records) / self.name)
        return Built(self.write_files(module, compiled_for, workdir))

    def compiled_for(self, target: Target) -> Any:
        """``target`` as TVM's."""
        return cpu_target(target.threads)

    def write_files(self, module: Any, target: Any, workdir: Path) -> tuple[str, ...]:
        """Compile ``module``, lowered for TVM's ``target``, into files of the returned names."""
        module = schedule_module(module, target)
        compile_module(module, target).export_library(str(workdir / _FILE), cc=find_linker())
        return (_FILE,)

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> Executable:
        # By the rule, code for one core needs no pool, so the calling thread's pool is left to pieces that need it.
        if target.threads > 1 or variant not in self.variants:
            set_threads(target.threads)
        return _Loaded(workdir / _FILE)


def find_linker() -> str | None:
    """A C++ compiler, which links what TVM builds; None where there is none."""
    return next((path for path in map(shutil.which, _COMPILERS) if path), None)


class _Loaded:
    def __init__(self, path: Path) -> None:
        import tvm
        from tvm import relax

        self._tvm = tvm
        self._machine = relax.VirtualMachine(load_library(path), tvm.cpu())

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        function = self._machine["main"]
        tensors = [self._tensor(array) for array in inputs]
        copied = [(tensor, array) for tensor, array, shared in tensors if not shared]
        arguments = [tensor for tensor, _, _ in tensors]
        targets = [self._tensor(array) for array in outputs]
        if not copied and len(targets) == 1 and targets[0][2]:
            return partial(_run_shared, function, arguments, targets[0][0])
        return partial(_run, function, arguments, copied, targets)

    def _tensor(self, array: np.ndarray) -> tuple[Any, np.ndarray, bool]:
        """A TVM tensor on the array's own memory if it is aligned, else one to copy to or from."""
        if array.ctypes.data % _ALIGNMENT == 0 and array.flags.writeable and array.ndim:
            return self._tvm.runtime.from_dlpack(array), array, True
        return self._tvm.runtime.empty(array.shape, array.dtype.name), array, False


def _run_shared(function: Any, arguments: Sequence[Any], result: Any) -> None:
    function(*arguments).copyto(result)


def _run(
    function: Any,
    arguments: Sequence[Any],
    copied: Sequence[tuple[Any, np.ndarray]],
    targets: Sequence[tuple[Any, np.ndarray, bool]],
) -> None:
    for tensor, array in copied:
        tensor.copyfrom(array)
    results = function(*arguments)
    for result, (tensor, array, shared) in zip(results if len(targets) > 1 else [results], targets, strict=True):
        if shared:
            result.copyto(tensor)
        else:
            np.copyto(array, np.from_dlpack(result))
