"""Runs cases on one backend in a process that may die: takes their names, sends one verdict each."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from collage_evo.backends.base import Backend, BuildFailure, Executable, Target
from collage_evo.backends.registry import get_backend
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph, Tensor
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import reference_outputs, relative_error

from .cases_frames import CASES

RIGHT = "right"
"""The verdict on a case that was built and gave what it ought to. Any other begins with one of these:"""
REFUSED = "refused: "
WRONG = "wrong: "

TOLERANCE = 1e-4
THREADS = 2


def work(backend: str, names: Sequence[str], connection: Connection) -> None:
    """Send a verdict for each name in turn."""
    for name in names:
        try:
            connection.send(verdict(get_backend(backend), name))
        except Exception as error:
            connection.send(f"{WRONG}{type(error).__name__}: {error}")


def verdict(backend: Backend, name: str) -> str:
    """Build, load, bind and run one case, twice over; never with the caller's inputs changed."""
    graph = build_graph(CASES[name]())
    support = backend.supports(graph, graph.all_nodes)
    if not support:
        return REFUSED + support.reason
    for variant in backend.variants_of(graph, graph.all_nodes):
        with tempfile.TemporaryDirectory() as folder:
            problem = _problem(backend, graph, variant, Path(folder))
        if problem:
            return f"{WRONG}{variant}: {problem}"
    return RIGHT


def _problem(backend: Backend, graph: Graph, variant: str, workdir: Path) -> str:
    target = Target(threads=THREADS)
    built = backend.build(graph.model, target, variant, workdir)
    if isinstance(built, BuildFailure):
        return f"build: {built.reason}"
    present = {path.name for path in workdir.iterdir()}
    if present != set(built.files):
        return f"files {sorted(present)}, declared {sorted(built.files)}"
    ins, outs = ([graph.tensors[name] for name in side] for side in (graph.inputs, graph.outputs))
    kinds = ((False, False), (True, False), (True, True))
    places = [_Place(backend.load(workdir, target, ins, outs), ins, outs, *kind) for kind in kinds]
    for seed, place in enumerate([*places, *places]):
        feeds = random_inputs(graph, seed)
        place.fill([feeds[name] for name in graph.inputs])
        place.run()
        if not all(np.array_equal(a, feeds[name]) for a, name in zip(place.inputs, graph.inputs, strict=True)):
            return f"run {seed} changed an input"
        error = relative_error(place.outputs, reference_outputs(graph.model, feeds))
        if not error.relative < TOLERANCE:
            return f"run {seed} is off by {error.relative:.2g}"
    return ""


class _Place:
    """One load of a piece, bound to buffers of its own, which may be aligned and the inputs write-protected."""

    def __init__(
        self, loaded: Executable, ins: Sequence[Tensor], outs: Sequence[Tensor], aligned: bool, protected: bool
    ) -> None:
        self.inputs, self.outputs = ([_buffer(tensor, aligned) for tensor in side] for side in (ins, outs))
        seen = [array.view() for array in self.inputs]
        for array in seen:
            array.flags.writeable = not protected
        self.run = loaded.bind(seen, self.outputs)

    def fill(self, values: Sequence[np.ndarray]) -> None:
        for array, value in zip(self.inputs, values, strict=True):
            array[...] = value
        for array in self.outputs:
            array[...] = 1 if array.dtype == bool else 77


def _buffer(tensor: Tensor, aligned: bool) -> np.ndarray:
    """Uninitialised memory at a multiple of 64 bytes, or at a multiple of the item size and of nothing more."""
    item = np.dtype(tensor.dtype).itemsize
    raw = np.empty(tensor.nbytes + 64 + item, np.uint8)
    start = -raw.ctypes.data % 64 + (0 if aligned else item)
    return raw[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
