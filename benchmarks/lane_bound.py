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
from collage_evo.backends.lanes.backend import BRANCHES, LanesBackend
from collage_evo.backends.lanes.plan import Copy, LanePlan, Part
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import DEFAULT
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
Memory = dict[str, np.ndarray]


@dataclass(frozen=True)
class Bound:
    """Shortest times of a region in ms: the library on one core and on all, lanes, and each lane's steps alone."""

    model: str
    kind: str
    operators: int
    parts: int
    one_core: float
    library: float
    shares: tuple[float, ...]
    lanes: float

    @property
    def cells(self) -> tuple[str, ...]:
        figures = (self.one_core, self.library, sum(self.shares), max(self.shares), self.lanes)
        ratio = f"{self.library / self.lanes:.2f}"
        return (self.model, self.kind, str(self.operators), str(self.parts), *(f"{f:.2f}" for f in figures), ratio)


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


def compiled(
    backend: Backend,
    model: onnx.ModelProto,
    threads: int,
    sides: Sequence[Sequence[Tensor]],
    memory: Memory,
    variant: str = DEFAULT.name,
) -> Call:
    """``model`` in a variant of the backend, on the memory of its tensors."""
    target, chosen = Target.here("cpu", threads), backend.variant(variant)
    with tempfile.TemporaryDirectory() as folder:
        built = backend.build(model, target, chosen, Path(folder))
        if isinstance(built, BuildFailure):
            raise InputError(built.reason)
        loaded = cast(Executable, backend.load(Path(folder), target, chosen, *sides))
    inputs, outputs = ([memory[tensor.name] for tensor in side] for side in sides)
    return loaded.bind(inputs, outputs)


def shares(backend: Backend, plan: LanePlan, models: Sequence[onnx.ModelProto], memory: Memory) -> list[list[Call]]:
    """The calls of each lane."""
    for name, tensor in plan.tensors.items():
        if name not in memory and name not in plan.views:
            memory[name] = np.zeros(tensor.shape, tensor.dtype)
    for name, view in plan.views.items():
        memory[name] = stretch(memory[view.parent], view.axis, view.start, view.stop)
    lanes: list[list[Call]] = [[] for _ in range(plan.lanes)]
    waiting = iter(models)
    for step in plan.steps:
        if isinstance(step, Part):
            sides = [[plan.tensors[name] for name in names] for names in (step.inputs, step.outputs)]
            lanes[step.lane].append(compiled(backend, next(waiting), 1, sides, memory))
        else:
            lanes[step.lane].append(copied(step, memory))
    return lanes


def copied(step: Copy, memory: Memory) -> Call:
    larger = memory[step.target if step.join else step.source]
    part = stretch(larger, step.axis, step.start, step.stop)
    target, source = (part, memory[step.source]) if step.join else (memory[step.target], part)
    return partial(np.copyto, target, source)


def stretch(array: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(start, stop),)]


def one_by_one(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def bounds(source: str, backend: Backend, cores: Sequence[int], most: int, seconds: float) -> Iterator[Bound]:
    """One for each region that is no repetition of another, and each way of cutting it."""
    graph = build_graph(normalise(load_model(source).original))
    lanes = cast(LanesBackend, get_backend(LanesBackend.name))
    seen: set[str] = set()
    for nodes in proposed(graph, most):
        if (key := structural_hash(graph, nodes)) in seen:
            continue
        seen.add(key)
        region = build_graph(extract(graph, nodes))
        memory: Memory = dict(cast(Mapping[str, np.ndarray], random_inputs(region.model, 0)))
        memory |= {name: np.zeros(region.tensors[name].shape, region.tensors[name].dtype) for name in region.outputs}
        sides = [[region.tensors[name] for name in names] for names in (region.inputs, region.outputs)]
        one, all_cores = (compiled(backend, region.model, threads, sides, memory) for threads in (1, len(cores)))
        for kind in lanes.kinds(graph, nodes):
            try:
                plan, models = lanes.cut(region, len(cores), kind, 1)
            except InputError:
                continue
            variant = backend.name if kind == BRANCHES else f"{backend.name}-{kind}"
            on_lanes = compiled(lanes, region.model, len(cores), sides, memory, variant)
            own = dict(memory)  # held until all is timed: bound calls do not hold their arrays
            alone = [partial(one_by_one, calls) for calls in shares(backend, plan, models, own)]
            here = cores[:1]
            calls: list[tuple[Call, Sequence[int]]] = [(one, here), (all_cores, cores), (on_lanes, cores)]
            times = shortest_ms([*calls, *((call, here) for call in alone)], seconds)
            operators, parts = nodes.bit_count(), len(plan.parts)
            yield Bound(source, kind, operators, parts, times[0], times[1], tuple(times[3:]), times[2])


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
    shown = Table("model", "cut", "operators", "parts", *times)
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
