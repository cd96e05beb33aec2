"""Runs cases on one backend in a process that may die: takes their names, sends one verdict each."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from collage_evo.backends.base import Backend, BuildFailure, Target
from collage_evo.backends.registry import get_backend
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph, Tensor
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import reference_outputs, relative_error

from .cases import CASES

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
    # Variants differ in how they convolve; the rest would only be built again.
    for variant in backend.variants if "conv" in name else backend.variants[:1]:
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
    inputs, outputs, others = ([_buffer(tensor) for tensor in side] for side in (ins, outs, outs))
    loaded = backend.load(workdir, target, ins, outs)
    runs = [(loaded.bind(inputs, outputs), outputs)]
    second = backend.load(workdir, target, ins, outs)
    runs.append((second.bind(inputs, others), others))
    for seed, (run, results) in enumerate([*runs, runs[0]]):
        feeds = random_inputs(graph, seed)
        expected = reference_outputs(graph.model, feeds)
        for array, name in zip(inputs, graph.inputs, strict=True):
            array[...] = feeds[name]
        for array in results:
            array[...] = 1 if array.dtype == bool else 77
        run()
        if not all(np.array_equal(array, feeds[name]) for array, name in zip(inputs, graph.inputs, strict=True)):
            return f"run {seed} changed an input"
        error = relative_error(results, expected)
        if not error.relative < TOLERANCE:
            return f"run {seed} is off by {error.relative:.2g}"
    return ""


def _buffer(tensor: Tensor) -> np.ndarray:
    """Uninitialised memory at an address that is a multiple of the item size and of nothing more."""
    item = np.dtype(tensor.dtype).itemsize
    raw = np.empty(tensor.nbytes + 64 + item, np.uint8)
    start = -raw.ctypes.data % 64 + item
    return raw[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
