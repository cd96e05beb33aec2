"""Checks of a backend with out-of-range indices, and with inputs of several shapes.

A native library may crash over it, so this runs in a process that may die (see ``process.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from collage_evo.backends.base import Backend, BuildFailure
from collage_evo.graph.check.indices import limits_of
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.runtime.limits import require_inside
from collage_evo.testing.cases.indices import index_cases
from collage_evo.testing.examine import Begin, Instance, Piece, borders
from collage_evo.testing.finding import Finding

Feeds = Mapping[str, Any]


def leads_out(backend: Backend, piece: Piece, workdir: Path, begin: Begin) -> Finding:
    """Whether the case of ``index_cases`` that ``piece`` is named after raises as ONNX Runtime does, or returns the
    same."""
    case = index_cases()[piece.name]
    graph = piece.graph()
    built = backend.build(graph.model, piece.target, backend.builder(piece.variant), workdir)
    if isinstance(built, BuildFailure):
        return Finding("indices", piece.name, "declined", built.reason)
    others = random_inputs(graph.model, seed=1, values={"i": case.right})
    limits = {} if backend.guards(piece.variant) else limits_of(graph, graph.all_nodes)
    reference, run = Reference(onnx.load_from_string(piece.model)), _runner(backend, piece, graph, workdir)
    for place, value in enumerate((case.right, *case.wild())):
        feeds = {**others, "i": value}
        begin("indices")
        wanted = _made(reference.run, feeds)
        found = _made(lambda given: run(_inside(given, limits)), feeds)
        if problem := _problem(found, wanted, piece.tolerance, required=not place):
            return Finding("indices", piece.name, "failed", f"of {value.reshape(-1)[-3:].tolist()}: {problem}")
    return Finding("indices", piece.name, "passed")


def any_shape(backend: Backend, piece: Piece, workdir: Path, begin: Begin) -> Finding:
    """Whether ``piece``, built once, gives what ONNX Runtime gives for feeds of each shape, and raises over another
    rank."""
    graph = piece.graph()
    built = piece.build(backend, workdir)
    if isinstance(built, BuildFailure):
        return Finding("open", piece.name, "declined", built.reason)
    reference, run = piece.reference(), _runner(backend, piece, graph, workdir)
    wrong = [np.stack([value] * 2) for value in piece.feeds[-1]]
    for values in (*piece.feeds, wrong, *piece.feeds[::-1]):
        feeds = dict(zip(graph.inputs, values, strict=True))
        begin("open")
        wanted, found = _made(reference.run, feeds), _made(run, feeds)
        if problem := _problem(found, wanted, piece.tolerance, required=values is not wrong):
            shapes = ", ".join(str(list(value.shape)) for value in values)
            return Finding("open", piece.name, "failed", f"in the shape {shapes}: {problem}")
    return Finding("open", piece.name, "passed")


def _inside(feeds: Feeds, limits: Mapping[str, tuple[int, int]]) -> Feeds:
    require_inside(feeds, limits)
    return feeds


def _made(run: Callable[[Any], list[Any]], feeds: Feeds) -> list[Any] | None:
    """The outputs of a run; None if it raises."""
    try:
        return run(feeds)
    except Exception:  # each library raises its own types
        return None


def _problem(made: list[Any] | None, wanted: list[Any] | None, tolerance: float, required: bool) -> str:
    if made is None:
        return "raises over a right value" if required else ""
    if wanted is None:
        return "gives numbers where ONNX Runtime raises"
    alike = [one.shape for one in made] == [one.shape for one in wanted]
    known = [np.nan_to_num(np.asarray(one, np.float64), nan=1e9) for one in (*made, *wanted)] if alike else []
    half = len(known) // 2
    same = alike and relative_error(known[:half], known[half:]).relative < tolerance
    return "" if same else "gives other numbers than ONNX Runtime"


def _runner(backend: Backend, piece: Piece, graph: Graph, workdir: Path) -> Callable[[Feeds], list[Any]]:
    """A run of the built piece; with open shapes, on buffers of the library's own."""
    if all(graph.tensors[name].static for name in graph.outputs):
        instance = Instance(backend, workdir, piece, graph)

        def bound(feeds: Feeds) -> list[Any]:
            instance.feed([feeds[name] for name in graph.inputs])
            return instance.run()

        return bound
    executable: Any = backend.load(workdir, piece.target, piece.variant, *borders(graph))
    return lambda feeds: list(executable.run([feeds[name] for name in graph.inputs]))
