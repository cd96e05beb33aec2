"""Checks of a backend with out-of-range indices, and with inputs of several shapes.

A native library may crash over it, so this runs in a process that may die (see ``process.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from collage_evo.backends.base import Backend, BuildFailure
from collage_evo.graph.check.indices import limits_of
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.values import Values
from collage_evo.graph.reference.distance import relative_error
from collage_evo.runtime.limits import require_inside
from collage_evo.testing.examine import Begin, Instance, Piece, borders
from collage_evo.testing.finding import Finding


def like_onnxruntime(
    check: Literal["indices", "open"], backend: Backend, piece: Piece, workdir: Path, begin: Begin
) -> Finding:
    """Whether ``piece``, built once, returns for each of its feeds what ONNX Runtime does, or raises as that does.

    Of ``indices`` it may refuse all but the first; with ``open`` inputs it has to run whatever ONNX Runtime runs.
    """
    graph = piece.graph()
    built = piece.build(backend, workdir)
    if isinstance(built, BuildFailure):
        return Finding(check, piece.name, "declined", built.reason)
    limits = {} if backend.guards(piece.variant) else limits_of(graph, graph.all_nodes)
    reference, run = piece.reference(), _runner(backend, piece, graph, workdir)
    for place, values in enumerate(piece.feeds):
        feeds = dict(zip(graph.inputs, values, strict=True))
        begin(check)
        wanted = _made(reference.run, feeds)
        found = _made(lambda given: run(_inside(given, limits)), feeds)
        if problem := _problem(found, wanted, piece.tolerance, required=check == "open" or not place):
            given = feeds["i"].reshape(-1)[-3:] if check == "indices" else [list(value.shape) for value in values]
            return Finding(check, piece.name, "failed", f"of {given}: {problem}")
    return Finding(check, piece.name, "passed")


def _inside(feeds: Values, limits: Mapping[str, tuple[int, int]]) -> Values:
    require_inside(feeds, limits)
    return feeds


def _made(run: Callable[[Any], list[Any]], feeds: Values) -> list[Any] | None:
    """The outputs of a run; None if it raises."""
    try:
        return run(feeds)
    except Exception:  # each library raises its own types
        return None


def _problem(made: list[Any] | None, wanted: list[Any] | None, tolerance: float, required: bool) -> str:
    if made is None:
        return "raises over a right value" if required and wanted is not None else ""
    if wanted is None:
        return "gives numbers where ONNX Runtime raises"
    alike = [one.shape for one in made] == [one.shape for one in wanted]
    known = [np.nan_to_num(np.asarray(one, np.float64), nan=1e9) for one in (*made, *wanted)] if alike else []
    half = len(known) // 2
    same = alike and relative_error(known[:half], known[half:]).relative < tolerance
    return "" if same else "gives other numbers than ONNX Runtime"


def _runner(backend: Backend, piece: Piece, graph: Graph, workdir: Path) -> Callable[[Values], list[Any]]:
    """A run of the built piece; with open shapes, on buffers of the library's own."""
    if all(graph.tensors[name].static for name in graph.outputs):
        instance = Instance(backend, workdir, piece, graph)

        def bound(feeds: Values) -> list[Any]:
            instance.feed([feeds[name] for name in graph.inputs])
            return instance.run()

        return bound
    executable: Any = backend.load(workdir, piece.target, piece.variant, *borders(graph))
    return lambda feeds: list(executable.run([feeds[name] for name in graph.inputs]))
