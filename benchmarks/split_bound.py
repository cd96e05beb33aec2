"""What cutting a model's stretches along a dimension could gain: each lane's share alone, on one core.

    python benchmarks/split_bound.py bound.json [--model builtin:mobilenet_v2] [--backend openvino] [--seconds 0.3]

Every stretch that ``split_patterns`` proposes runs whole, on one core and on as many as there are lanes; then each
lane's share with its copies, one after the other on the first core. The longest share is what is left if nobody waits
and nobody is in the other's way: handoffs are not in it. Given are the shortest times in ms, since others only
lengthen them.
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
from rich.console import Console
from rich.table import Table

from collage_evo.backends.base import Backend, BuildFailure, Executable, Target
from collage_evo.backends.lanes.plan import Copy, LanePlan, Part
from collage_evo.backends.lanes.split import split
from collage_evo.backends.lanes.split_patterns import split_patterns
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError
from collage_evo.graph.extract import extract, structural_hash
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph, Tensor, members
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.models.builtin import make_builtin
from collage_evo.target.slots import acquire_slot, usable_cores

WARM_UP = 3
Call = Callable[[], object]
Memory = dict[str, np.ndarray]


@dataclass(frozen=True)
class Bound:
    """Shortest times of a stretch in ms: whole on one core, whole on all, and the share of each lane on one."""

    kind: str
    operators: int
    shape: tuple[int, ...]
    one_core: float
    library: float
    shares: tuple[float, ...]


def shortest_ms(call: Call, seconds: float) -> float:
    for _ in range(WARM_UP):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def compiled(
    backend: Backend, model: onnx.ModelProto, threads: int, sides: Sequence[Sequence[Tensor]], memory: Memory
) -> Call:
    """``model`` in the backend's first variant, on the memory of its tensors."""
    target, variant = Target.here("cpu", threads), backend.variants[0]
    with tempfile.TemporaryDirectory() as folder:
        built = backend.build(model, target, variant, Path(folder))
        if isinstance(built, BuildFailure):
            raise InputError(built.reason)
        loaded = cast(Executable, backend.load(Path(folder), target, variant, *sides))
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


def bounds(graph: Graph, backend: Backend, cores: Sequence[int], seconds: float) -> Iterator[Bound]:
    """One for each stretch that is no repetition of another."""
    seen: set[tuple[str, str]] = set()
    for pattern in split_patterns():
        for nodes in pattern.find(graph, graph.all_nodes):
            key = (pattern.kind, structural_hash(graph, nodes))
            if key in seen:
                continue
            seen.add(key)
            region = build_graph(extract(graph, nodes))
            plan, models = split(region, len(cores), pattern.kind)
            memory: Memory = dict(cast(Mapping[str, np.ndarray], random_inputs(region.model, 0)))
            lanes = shares(backend, plan, models, memory)
            sides = [[region.tensors[name] for name in names] for names in (region.inputs, region.outputs)]
            wholes = [compiled(backend, region.model, threads, sides, memory) for threads in (1, len(cores))]
            library = shortest_ms(wholes[1], seconds)
            os.sched_setaffinity(0, cores[:1])
            one_core = shortest_ms(wholes[0], seconds)
            taken = tuple(shortest_ms(partial(one_by_one, calls), seconds) for calls in lanes)
            os.sched_setaffinity(0, cores)
            shape = region.tensors[region.outputs[0]].shape
            yield Bound(pattern.kind, len(list(members(nodes))), shape, one_core, library, taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:mobilenet_v2")
    parser.add_argument("--backend", default="openvino")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    options = parser.parse_args()
    cores = usable_cores()[: options.lanes]
    slot = acquire_slot((cores,))
    assert slot is not None  # it waits for ever
    graph = build_graph(normalise(make_builtin(options.model, 0)[1]))
    shown = Table("split by", "operators", "output", "one core", "all cores", "longest share", "over one", "over all")
    found = []
    try:
        for bound in bounds(graph, get_backend(options.backend), cores, options.seconds):
            found.append(bound)
            longest = max(bound.shares)
            figures = (bound.one_core, bound.library, longest, bound.one_core / longest, bound.library / longest)
            size = "x".join(map(str, bound.shape))
            shown.add_row(bound.kind, str(bound.operators), size, *(f"{figure:.2f}" for figure in figures))
    finally:
        slot.release()
    options.output.write_text(json.dumps([asdict(bound) for bound in found]))
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
