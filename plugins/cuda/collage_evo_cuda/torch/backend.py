"""The PyTorch backend: programs compiled ahead of time by Inductor, or run eagerly."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
)
from collage_evo.backends.checks import probe_distribution, returns_failures
from collage_evo.backends.plain import PlainFiles
from collage_evo.backends.profiled import KernelTime
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.errors import named_line
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.hardware.cores import gnu_openmp
from collage_evo_cuda import PACKAGE
from collage_evo_cuda.checks import normalised_graph
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.torch.archive import require_unpickled
from collage_evo_cuda.torch.operators import OPERATORS
from collage_evo_cuda.torch.plain import TorchPlain
from collage_evo_cuda.torch.plain.piece import bound
from collage_evo_cuda.torch.rules import judge

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern

_COMPILED, _EXPORTED = "model.pt2", "eager.pt2"
_EAGER = Variant("eager")
Program = Callable[..., Any]


class TorchBackend(Backend):
    """Regions exported by ``torch.export`` and compiled by Inductor ahead of time; ``eager`` skips compilation.

    Compiling takes about ten seconds a region, most of it in the C++ compiler. Inductor lays out weights for oneDNN
    at compile time.
    """

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "PyTorch"
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT, _EAGER)

    def probe(self) -> Probe:
        probe = probe_distribution("torch", "torch", PACKAGE)
        if probe.available and not shutil.which("g++"):
            return Probe(False, probe.version, reason="Inductor compiles C++: install g++")
        return probe

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.common import EPILOGUE, SINGLE
        from collage_evo.patterns.regions import Regions

        return (SINGLE, EPILOGUE, Regions())

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return judge(graph, node, OPERATORS)

    def is_eager(self, variant: Variant) -> bool:
        """Whether pieces of ``variant`` are not compiled."""
        return variant == _EAGER

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """A single light operator has nothing to fuse with: compiling it would take long and win little."""
        compiled = nodes.bit_count() > 1 or any(graph.nodes[index].op_type in HEAVY for index in members(nodes))
        return tuple(variant for variant in self.variants if compiled or self.is_eager(variant))

    def runs_on_after_fork(self, variant: Variant, threads: int) -> bool:
        return threads == 1

    def environment(self, target: Target) -> Mapping[str, str]:
        return gnu_openmp(target.threads)

    def plain_files(self) -> PlainFiles:
        return TorchPlain(lambda variant: (self._file(variant), not self.is_eager(variant)))

    @returns_failures(named_line)
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        name = self._file(variant)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.write_region(normalised_graph(model), variant, workdir / name, target.threads)
            return Built((name,))

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> Executable | DeviceExecutable:
        with self._checked(workdir, target, variant) as path:
            return self.open_program(path, variant)

    def profiles(self, variant: Variant) -> bool:
        return self.is_eager(variant)

    def profile(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[np.ndarray], seconds: float
    ) -> Sequence[KernelTime]:
        import torch

        with self._checked(workdir, target, variant) as path:
            return self.profile_program(path, variant, [torch.from_numpy(array) for array in inputs], seconds)

    def profile_program(
        self, path: Path, variant: Variant, inputs: Sequence[Any], seconds: float
    ) -> Sequence[KernelTime]:
        """Profile the exported program at ``path`` on tensors of the host."""
        import torch

        from collage_evo_cuda.torch.profile import profile_program

        return profile_program(torch.export.load(str(path)).module(), inputs, seconds)

    def write_region(self, graph: Graph, variant: Variant, path: Path, threads: int) -> None:
        """Write the program of ``graph`` for ``variant`` to ``path``."""
        import torch

        from collage_evo_cuda.torch.export import compile_program, export_region, save_program

        torch.set_num_threads(threads)
        with torch.no_grad():
            exported = export_region(graph)
            if self.is_eager(variant):
                save_program(exported, path)
            else:
                compile_program(exported, path, threads)

    def open_program(self, path: Path, variant: Variant) -> Executable | DeviceExecutable:
        """Load the program at ``path``."""
        import torch

        if self.is_eager(variant):
            return _Loaded(torch.export.load(str(path)).module())
        return _Loaded(torch._inductor.aoti_load_package(str(path)))

    @contextmanager
    def _checked(self, workdir: Path, target: Target, variant: Variant) -> Iterator[Path]:
        """The piece's archive, for PyTorch on the target's threads and without its warnings.

        Raises:
            InputError: it holds pickled data.
        """
        import torch

        torch.set_num_threads(target.threads)
        path = workdir / self._file(variant)
        require_unpickled(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield path

    def _file(self, variant: Variant) -> str:
        return _EXPORTED if self.is_eager(variant) else _COMPILED


class _Loaded:
    def __init__(self, program: Program) -> None:
        self._program = program

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        return bound(self._program, inputs, outputs)
