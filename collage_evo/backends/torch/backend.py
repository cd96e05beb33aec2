"""PyTorch on the CPU: takes a region's model, gives a program compiled ahead of time, or one that runs eagerly."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import Backend, BuildFailure, Built, Executable, Probe, Support, Target
from collage_evo.backends.checks import fails_to_pass_through, probe_distribution
from collage_evo.backends.torch.archive import require_unpickled
from collage_evo.backends.torch.operators import OPERATORS, Call
from collage_evo.backends.torch.rules import judge
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.errors import one_line
from collage_evo.graph.ir import Graph, Node, NodeSet, Tensor, members
from collage_evo.graph.operators import HEAVY
from collage_evo.target.cores import gnu_openmp

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern

_COMPILED, _EXPORTED = "model.pt2", "eager.pt2"
_MEND = 'pip install "collage-evo[torch]"'


_EAGER = Variant("eager")


class TorchBackend(Backend):
    """Regions exported by ``torch.export`` and compiled by Inductor ahead of time; ``eager`` leaves that out.

    Compiling takes about ten seconds a region, most of it in the C++ compiler. Weights are laid out for
    oneDNN at compile time.
    """

    name: ClassVar[str] = "torch"
    extra: ClassVar[str] = "torch"
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT, _EAGER)

    def probe(self) -> Probe:
        found = probe_distribution("torch", _MEND)
        if found.available and not shutil.which("g++"):
            return Probe(False, found.version, reason="Inductor compiles C++: install g++")
        return found

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.common import EPILOGUE, SINGLE
        from collage_evo.patterns.regions import Regions

        return (SINGLE, EPILOGUE, Regions())

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return judge(graph, node, OPERATORS)

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """A light operator alone has nothing to be fused with: compiling it would take long and win little."""
        chosen = [graph.nodes[index] for index in members(nodes)]
        return (_EAGER,) if len(chosen) == 1 and chosen[0].op_type not in HEAVY else self.variants

    def environment(self, target: Target) -> Mapping[str, str]:
        return gnu_openmp(target.threads)

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        reason = fails_to_pass_through(model)
        if reason:
            return BuildFailure(reason)
        from collage_evo.graph.normalise import normalise
        from collage_evo.graph.read import build_graph

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # Pieces come normalised, the person's own model does not.
                graph = build_graph(normalise(model))
                return Built((_write(graph, target.threads, variant, workdir),))
        except Exception as error:
            # Every failure of the library is one kind of outcome here: this piece cannot be built.
            return BuildFailure(f"torch: {type(error).__name__}: {one_line(error)}")

    def load(
        self,
        workdir: Path,
        target: Target,
        variant: Variant,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> Executable:
        import torch

        torch.set_num_threads(target.threads)
        compiled, exported = workdir / _COMPILED, workdir / _EXPORTED
        eager = variant == _EAGER
        require_unpickled(exported if eager else compiled)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if eager:
                return _Loaded(torch.export.load(str(exported)).module())
            return _Loaded(torch._inductor.aoti_load_package(str(compiled)))


def _write(graph: Graph, threads: int, variant: Variant, workdir: Path) -> str:
    """Export the region; the name of the file."""
    import torch
    import torch._inductor

    given = [graph.tensors[name] for name in graph.inputs]
    examples = tuple(torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype)) for tensor in given)
    torch.set_num_threads(threads)
    with torch.no_grad():
        program = torch.export.export(_module(graph), examples)
        if variant.name == "eager":
            # PyTorch pickles the examples, and has no need of them.
            program.example_inputs = None
            torch.export.save(program, workdir / _EXPORTED)
            return _EXPORTED
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(workdir / _COMPILED),
            inductor_configs={"freezing": True, "cpp.threads": threads, "compile_threads": 1},
        )
    return _COMPILED


def _module(graph: Graph) -> Any:
    """The region as a module that runs one operator after the other; its class needs PyTorch to be made."""
    import torch

    class Region(torch.nn.Module):  # type: ignore[misc]  # untyped where it is not installed
        def __init__(self) -> None:
            super().__init__()
            self._slots = {name: f"c{index}" for index, name in enumerate(graph.constants)}
            for name, slot in self._slots.items():
                self.register_buffer(slot, torch.from_numpy(np.array(graph.constants[name])))

        def forward(self, *arguments: Any) -> tuple[Any, ...]:
            values = {name: getattr(self, slot) for name, slot in self._slots.items()}
            values.update(zip(graph.inputs, arguments, strict=True))
            for node in graph.nodes:
                tensors = [values[name] if name else None for name in node.inputs]
                made = OPERATORS[node.op_type](Call(graph, node, tensors))
                values.update(zip(node.outputs, made if isinstance(made, tuple | list) else (made,), strict=True))
            return tuple(values[name] for name in graph.outputs)

    return Region().eval()


class _Loaded:
    def __init__(self, program: Callable[..., Any]) -> None:
        self._program = program

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        import torch

        with warnings.catch_warnings():
            # Of write-protected arrays. The program does not write on its inputs.
            warnings.simplefilter("ignore")
            given = [torch.from_numpy(array) for array in inputs]
        return partial(_run, torch.no_grad, self._program, given, [torch.from_numpy(array) for array in outputs])


def _run(
    no_grad: Callable[[], Any], program: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> None:
    with no_grad():
        made = program(*inputs)
        for target, tensor in zip(outputs, made, strict=True):
            target.copy_(tensor)
