"""A backend that misbehaves on purpose: each of its variants is one fault. It tests what measuring survives."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collage_evo.backends.base import Backend, BuildFailure, Built, Executable, Support, Target, no
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.registry import GROUP
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.graph.ir.graph import Graph, NodeSet, Tensor
from tests.support.delegating import DelegatingBackend

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern

Buffers = Sequence[np.ndarray]
Fault = Callable[[Buffers, Buffers], object]
"""What goes wrong after a run: takes its inputs and outputs."""

PLACE = "COLLAGE_EVO_FAULTY_PLACE"
"""The environment variable that tells machines apart, for code that only runs where it was built."""
_FILE, _BUILT_ON = "fault.txt", "built_on.txt"
_LATE = 5000
"""Runs before a late fault shows: more than a match is timed for, fewer than a tiny placement is."""
_hoard: list[mmap.mmap] = []


def _hang(inputs: Buffers, outputs: Buffers) -> None:
    while True:
        time.sleep(3600)


def _leak(inputs: Buffers, outputs: Buffers) -> None:
    while True:
        # Pages that are there at once: to touch each may take seconds of a machine that is short of memory.
        _hoard.append(mmap.mmap(-1, 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
        time.sleep(0.02)


def _raise(inputs: Buffers, outputs: Buffers) -> None:
    raise RuntimeError("raised\non purpose")


def _spoil(inputs: Buffers, outputs: Buffers) -> None:
    for array in outputs:
        array += 1


def _fill_nan(inputs: Buffers, outputs: Buffers) -> None:
    for array in outputs:
        array.fill(np.nan)


def _overwrite(inputs: Buffers, outputs: Buffers) -> None:
    for array in inputs:
        array += 1


FAULTS: Mapping[str, Fault] = {
    "crash": lambda inputs, outputs: ctypes.string_at(0),
    "abort": lambda inputs, outputs: os.abort(),
    "exit": lambda inputs, outputs: os._exit(0),
    "hang": _hang,
    "leak": _leak,
    "raise": _raise,
    "nan": _fill_nan,
    "wrong": _spoil,
    "overwrite": _overwrite,
}


class FaultyBackend(DelegatingBackend):
    """ONNX Runtime on convolutions, with a fault after each run; a variant ``NAME-late`` starts out well,
    ``NAME-building`` does not come so far.

    ``slow`` is no fault, but 3 % slower than it could be. ``native`` is none on the machine that it was built on and
    crashes where it is loaded on another; the environment variable ``PLACE`` says which this one is.
    """

    name: ClassVar[str] = "faulty"
    variants: ClassVar[tuple[Variant, ...]] = tuple(map(Variant, (
        *FAULTS, "crash-building", "hang-building", "crash-late", "wrong-late", "unbuildable", "unloadable",
        "slow", "native",
    )))  # fmt: skip

    def keeping_to(self, cores: Sequence[int]) -> Backend:
        return self

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.language import GraphPattern

        return (GraphPattern("single", lambda op: op.Conv(...)),)

    def supports(self, graph: Graph, nodes: NodeSet) -> Support:
        return super().supports(graph, nodes) if nodes.bit_count() == 1 else no("one convolution at a time")

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        if variant.name == "unbuildable":
            return BuildFailure("faulty: cannot be built, on purpose")
        fault, _, when = variant.name.partition("-")
        if when == "building":
            FAULTS[fault]((), ())
        built = super().build(model, target, variant, workdir)
        (workdir / _BUILT_ON).write_text(os.environ.get(PLACE, ""))
        return built if isinstance(built, BuildFailure) else Built((*built.files, _BUILT_ON))

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable:
        if variant.name == "unloadable":
            raise RuntimeError("cannot be loaded, on purpose")
        if variant.name == "native" and (workdir / _BUILT_ON).read_text() != os.environ.get(PLACE, ""):
            ctypes.string_at(0)
        return _Faulty(self.load_honest(workdir, target, inputs, outputs), variant.name)


class _Faulty:
    def __init__(self, honest: Executable, variant: str) -> None:
        self._honest = honest
        self._variant = variant

    def bind(self, inputs: Buffers, outputs: Buffers) -> Callable[[], None]:
        honest = self._honest.bind(inputs, outputs)
        if self._variant == "native":
            return honest
        if self._variant == "slow":
            return lambda: _slowly(honest, 0.03)
        name, _, late = self._variant.partition("-")
        fault, left = FAULTS[name], _LATE if late else 0

        def call() -> None:
            nonlocal left
            honest()
            left -= 1
            if left < 0:
                fault(inputs, outputs)

        return call


class WrongElsewhere(OnnxRuntimeBackend):
    """ONNX Runtime, whose results are wrong for any number of rows but two."""

    name: ClassVar[str] = "elsewhere"
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT,)

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Any:
        loaded: Any = super().load(workdir, target, variant, inputs, outputs)
        honest = loaded.run
        loaded.run = lambda arrays: [value + (len(value) != 2) for value in honest(arrays)]
        return loaded


def _slowly(call: Callable[[], None], share: float) -> None:
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    while time.perf_counter() < end + share * (end - start):
        pass


def declare(directory: Path, group: str, name: str, value: str) -> None:
    """Make a distribution in ``directory`` whose only entry point is ``name``."""
    metadata = directory / f"collage_evo_{name}-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: collage-evo-{name}\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


def install_faulty(directory: Path) -> Mapping[str, str]:
    """:func:`install_backend` of the faulty backend."""
    return install_backend(directory, FaultyBackend)


def install_backend(directory: Path, backend: type[Backend]) -> Mapping[str, str]:
    """Make a distribution with ``backend`` in ``directory``; gives the environment that makes it known.

    Processes started with that environment find the backend as they find any other that is installed.
    """
    declare(directory, GROUP, backend.name, f"{backend.__module__}:{backend.__name__}")
    root = Path(__file__).parents[2]  # measuring processes import this module
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(directory), str(root), os.environ.get("PYTHONPATH"))))}
