"""Whether the dynamic program finds the optimum: against brute force, and against an exact 0-1 program.

    python benchmarks/exactness.py exactness.json [--models builtin:resnet50 ...] [--backends onnxruntime ...]

500 random small graphs are solved by trying every cover. Real models, with costs measured on this machine (or
kept from before), are solved by HiGHS as well. The NasNet-A-like graph of 1,000 nodes shows time and states.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

import repository  # noqa: F401
from networks import model_source
from rich.console import Console
from rich.table import Table

from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.placement.space import SearchSpace
from collage_evo.report.progress import LineReporter
from collage_evo.run.open import open_run
from collage_evo.run.stages.costs import gather_costs
from collage_evo.run.stages.model import normalise
from collage_evo.search.cover.dynamic_program import cheapest_covers
from tests.support.exact import exact_cover
from tests.support.optimum import acyclic_covers, cover_ms
from tests.support.spaces import make_space, nasnet_like, small_space

MODELS = ("builtin:resnet50", "network:inception_v1", "network:densenet121", "builtin:squeezenet")
T = TypeVar("T")
SAME = 1e-6
"""Costs within this share are the same; HiGHS works with tolerances."""


@dataclass(frozen=True)
class Row:
    """One graph. ``truth_ms`` is what the other method found (None: not run), both in ms and ``seconds``."""

    graph: str
    nodes: int
    matches: int
    dp_ms: float
    dp_bound_ms: float
    dp_exact: bool
    states: int
    dp_seconds: float
    truth_ms: float | None = None
    truth_seconds: float | None = None

    @property
    def same(self) -> bool | None:
        """Whether both found the same cost."""
        return None if self.truth_ms is None else abs(self.dp_ms / self.truth_ms - 1) <= SAME


def compare(name: str, space: SearchSpace, truth: Callable[[SearchSpace], float] | None) -> Row:
    """Solve ``space`` by the dynamic program, and by ``truth``."""
    result, seconds = timed(lambda: cheapest_covers(space))
    row = Row(
        name,
        len(space.graph.nodes),
        len(space.usable),
        result.cost_ms,
        result.bound_ms,
        result.exact,
        result.states,
        seconds,
    )
    if truth is None:
        return row
    cost, spent = timed(lambda: truth(space))
    return Row(**{**asdict(row), "truth_ms": cost, "truth_seconds": spent})


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """What ``function`` gives, and the CPU seconds it took."""
    started = time.process_time()
    return function(), time.process_time() - started


def brute_force_ms(space: SearchSpace) -> float:
    """Cost of the cheapest of all acyclic covers."""
    return min(cover_ms(space, cover) for cover in acyclic_covers(space))


def measured_space(source: str, backends: list[str], runs: int, cache: str | None) -> SearchSpace:
    """The search space of a real model, with costs measured on one thread."""
    data = {
        "model": {"source": model_source(source)},
        "costs": {"timing": {"warmup": 1, "min_runs": runs, "min_seconds": 0.002}},
        "cache": {"dir": cache},
    }
    config = parse_config(data, (), "benchmark")
    with tempfile.TemporaryDirectory() as work, open_run(config, Path(work), LineReporter()) as (context, model):
        graph = normalise(context, model).graph
        chosen = select_backends(backends)
        return gather_costs(context, graph, enumerate_matches(graph, chosen), chosen).space


def show(rows: list[Row]) -> Table:
    shown = Table()
    for column in ("graph", "nodes", "matches", "DP ms", "bound ms", "states", "DP s", "0-1 program ms", "s", "same"):
        shown.add_column(column, justify="left" if column == "graph" else "right")
    for row in rows:
        truth = ("", "", "") if row.truth_ms is None else (
            f"{row.truth_ms:.4f}", f"{row.truth_seconds:.1f}", "yes" if row.same else "NO"
        )  # fmt: skip
        cells = (f"{row.dp_ms:.4f}", f"{row.dp_bound_ms:.4f}", str(row.states), f"{row.dp_seconds:.2f}")
        shown.add_row(row.graph, str(row.nodes), str(row.matches), *cells, *truth)
    return shown


def keep(path: Path, rows: list[Row]) -> None:
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--random", type=int, default=500, help="random graphs solved by brute force")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--backends", nargs="+", default=["onnxruntime", "openvino", "ncnn"])
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each match")
    parser.add_argument("--nodes", type=int, default=1000, help="size of the NasNet-A-like graph")
    parser.add_argument("--cache", help="cache directory (default: the usual one)")
    options = parser.parse_args()
    small = [compare(f"random-{seed}", small_space(seed), brute_force_ms) for seed in range(options.random)]
    print(f"{sum(row.same is True for row in small)} of {len(small)} random graphs: same optimum as brute force")
    rng = Random(1)
    nasnet = make_space(nasnet_like(options.nodes, rng), rng, engines=4, extra=1.5)
    large = [compare("NasNet-A-like", nasnet, None)]
    Console(width=130).print(show(large))
    keep(options.output, small + large)
    for source in options.models:
        space = measured_space(source, options.backends, options.runs, options.cache)
        large.append(compare(source, space, lambda space: exact_cover(space).cost_ms))
        Console(width=130).print(show(large[-1:]))
        keep(options.output, small + large)
    Console(width=130).print(show(large))


if __name__ == "__main__":
    main()
