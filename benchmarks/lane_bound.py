"""Where the time goes that lanes should win: each lane's own steps alone on one core, beside whole regions and lanes.

    python benchmarks/lane_bound.py bound.json [--models builtin:inception_v1 ...] [--backend openvino] [--most 8]
        [--seconds 0.3] [--lanes 2]

For every region that ``lane_regions.py`` knows (those with the most arithmetic first) and every way of cutting it:
the library on one core and on all; each lane's parts and copies, one after the other on the first core; and the
region on lanes. What the lanes' steps take together beyond the library on one core is lost at the borders of parts;
what the longest share takes beyond an equal one, in the cut; what lanes take beyond the longest share, by handing on
and by being two. Given are the shortest times in ms, since others only lengthen them; measurements take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import onnx
from lane_regions import MODELS, proposed
from rich.console import Console
from rich.table import Table

from collage_evo.backends.base import Backend, BuildFailure, Executable, Target
from collage_evo.backends.lanes.backend import Engine, LanesBackend, Way
from collage_evo.backends.lanes.load import LoadedLanes
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError
from collage_evo.graph.extract import extract, structural_hash
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Tensor
from collage_evo.graph.load import load_model
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.target.slots import acquire_slot, usable_cores

WARM_UP, TURNS = 3, 5
Call = Callable[[], object]


@dataclass(frozen=True)
class Bound:
    """Shortest times of a region in ms: the library on one core and on all, lanes, and each lane's steps alone."""

    model: str
    operators: int
    steps: int
    one_core: float
    library: float
    shares: tuple[float, ...]
    lanes: float

    @property
    def cells(self) -> tuple[str, ...]:
        figures = (self.one_core, self.library, sum(self.shares), max(self.shares), self.lanes)
        ratio = f"{self.library / self.lanes:.2f}"
        return (self.model, str(self.operators), str(self.steps), *(f"{f:.2f}" for f in figures), ratio)


def shortest_ms(calls: Sequence[tuple[Call, Sequence[int]]], seconds: float) -> list[float]:
    """The shortest time of each call on its cores, in ms; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(TURNS):
        for (call, cores), taken in zip(calls, times, strict=True):
            os.sched_setaffinity(0, cores)
            for _ in range(0 if turn else WARM_UP):
                call()
            end = time.perf_counter() + seconds / TURNS
            while not taken or time.perf_counter() < end:
                begin = time.perf_counter()
                call()
                taken.append(time.perf_counter() - begin)
    return [1e3 * min(taken) for taken in times]


def loaded(
    backend: Backend, model: onnx.ModelProto, threads: int, sides: Sequence[Sequence[Tensor]], variant: str
) -> Executable:
    """``model`` in a variant of the backend."""
    target, chosen = Target.here("cpu", threads), backend.variant(variant)
    with tempfile.TemporaryDirectory() as folder:
        built = backend.build(model, target, chosen, Path(folder))
        if isinstance(built, BuildFailure):
            raise InputError(built.reason)
        return cast(Executable, backend.load(Path(folder), target, chosen, *sides))


def one_by_one(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def bounds(source: str, backend: Backend, cores: Sequence[int], most: int, seconds: float) -> Iterator[Bound]:
    """One for each region that is no repetition of another."""
    graph = build_graph(normalise(load_model(source).original))
    lanes = cast(LanesBackend, get_backend(LanesBackend.name))
    here, usual = cores[:1], backend.variants[0].name
    seen: set[str] = set()
    for nodes in proposed(graph, most):
        if (key := structural_hash(graph, nodes)) in seen:
            continue
        seen.add(key)
        region = build_graph(extract(graph, nodes))
        sides = [[region.tensors[name] for name in names] for names in (region.inputs, region.outputs)]
        inputs = list(cast(Mapping[str, np.ndarray], random_inputs(region.model, 0)).values())
        outputs = [np.zeros(tensor.shape, tensor.dtype) for tensor in sides[1]]
        one, every = (
            loaded(backend, region.model, threads, sides, usual).bind(inputs, outputs)
            for threads in (1, len(cores))
        )
        way = Way(Engine(backend.name, usual))
        try:
            cut = cast(LoadedLanes, loaded(lanes, region.model, len(cores), sides, way.variant.name))
        except InputError as refused:
            print(f"{source}, {nodes.bit_count()} operators: {refused}")
            continue
        arrays = cut.arrays(inputs, outputs)
        tasks = cut.tasks(arrays)
        alone = [
            partial(one_by_one, [task.call for task in tasks if task.lane == lane])
            for lane in sorted({task.lane for task in tasks})
        ]
        calls: list[tuple[Call, Sequence[int]]] = [(one, here), (every, cores)]
        calls += [(cut.bind(inputs, outputs), cores), *((call, here) for call in alone)]
        one_core, library, on_lanes, *shares = shortest_ms(calls, seconds)
        operators = nodes.bit_count()
        yield Bound(source, operators, len(tasks), one_core, library, tuple(shares), on_lanes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--backend", default="openvino")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--most", type=int, default=8, help="regions of a model")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    options = parser.parse_args()
    cores = usable_cores()[: options.lanes]
    slot = acquire_slot((cores,))
    assert slot is not None  # it waits for ever
    times = ("one core", "all cores", "all shares", "longest share", "lanes", "all cores over lanes")
    shown = Table("model", "operators", "steps", *times)
    found = []
    try:
        for source in options.models:
            for bound in bounds(source, get_backend(options.backend), cores, options.most, options.seconds):
                found.append(bound)
                shown.add_row(*bound.cells)
                print("; ".join(bound.cells), flush=True)
                options.output.write_text(json.dumps([asdict(bound) for bound in found], indent=1))
    finally:
        slot.release()
    Console(width=150).print(shown)


if __name__ == "__main__":
    main()
