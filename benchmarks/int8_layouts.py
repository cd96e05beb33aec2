"""What it wins to write zeros around a convolution's input, and a long kernel as a column, in int8 (OpenVINO).

    python benchmarks/int8_layouts.py layouts.json [--models FOLDER/pitch/model.onnx builtin:densenet121 ...]
        [--rounds 25] [--around f32]

Chains of three convolutions with a HardSwish behind each, in int8, or ``--models`` with all that can be in int8. One
thread; around int8 is bfloat16, or float32. The sides take turns, run by run in random order: as a search writes it;
without zeros and columns written out (*plain*); nothing in int8. Printed are their medians in ms and the median of
the ratio of the first to the second, with its 95 % interval; all times are kept. Outputs of both have to be equal but
for rounding. With ``ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI`` set OpenVINO computes as on a processor without AMX.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from collage_evo.backends.base import Built
from collage_evo.backends.openvino import OpenVinoBackend
from collage_evo.graph.extract import extract
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph
from collage_evo.graph.load import ModelFile
from collage_evo.graph.normalise import normalise
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import relative_error
from collage_evo.models.builder import Builder
from collage_evo.quantise.ranges import calibrate
from collage_evo.quantise.rules import quantisable
from collage_evo.quantise.write import quantised_region
from collage_evo.statistics import bootstrap_interval
from collage_evo.target.processor import this_machine
from collage_evo.target.slots import acquire_slot, timing_slots, usable_cores
from collage_evo.target.target import CPU, Target

CHAINS = {
    **{f"signal, {c} x {length}, kernel {k}": (c, 1, length, 1, k) for c, length, k in (
        (64, 1024, 3), (256, 256, 3), (512, 100, 3), (64, 512, 5), (128, 256, 9), (64, 512, 16), (128, 128, 64),
        (1024, 128, 64),
    )},
    **{f"image, {c} x {size} x {size}, kernel {k}": (c, size, size, k, k) for c, size, k in (
        (16, 112, 3), (32, 56, 3), (64, 56, 3), (128, 28, 3), (256, 14, 3), (512, 7, 3), (64, 28, 5),
    )},
}  # fmt: skip
"""Channels, height, width and the kernel's both extents."""
AS_WRITTEN, PLAIN, NONE = "as written", "plain", "no int8"
TOLERANCE = 0.02
"""The same integers are multiplied; between them other kernels round what lies halfway otherwise."""


def chain(channels: int, height: int, width: int, *kernel: int) -> onnx.ModelProto:
    rng, net = np.random.default_rng(0), Builder("chain")
    x = net.input("x", (1, channels, height, width))
    before, after = [(extent - 1) // 2 for extent in kernel], [extent // 2 for extent in kernel]
    for _ in range(3):
        weights = rng.standard_normal((channels, channels, *kernel)) / np.sqrt(channels * np.prod(kernel))
        x = net.op("HardSwish", net.op("Conv", x, net.const(weights.astype(np.float32)), pads=[*before, *after]))
    return net.model(x)


def graph_of(model: onnx.ModelProto | str) -> Graph:
    """A model, or a file or ``builtin:NAME``, as a search takes it apart."""
    if isinstance(model, onnx.ModelProto):
        return build_graph(normalise(model))
    return searchable(prepare_model(ModelFile(model), {}, 1, threads=1), 1).graph


def sides_of(graph: Graph) -> dict[str, onnx.ModelProto]:
    """The whole of ``graph`` as each side has it."""
    variant = OpenVinoBackend().variant("bf16-int8")
    assert variant.quantisers is not None
    ranges = calibrate(graph, [random_inputs(graph, seed) for seed in range(2)])
    chosen = quantisable(graph, graph.all_nodes, variant.quantisers, variant.everything, ranges)
    arguments = graph, graph.all_nodes, chosen, ranges, variant.quantisers
    found = {AS_WRITTEN: quantised_region(*arguments)}
    with mock.patch("collage_evo.quantise.write._Writer._layout", return_value=((), ())):
        found[PLAIN] = quantised_region(*arguments)
    return {**found, NONE: extract(graph, graph.all_nodes)}


def measure(graph: Graph, around: str, rounds: int, folder: Path) -> Mapping[str, list[float]]:
    """ms of each side, run by run."""
    backend, target = OpenVinoBackend(), Target.here(CPU, 1)
    variant = backend.variant({"bf16": "bf16", "f32": "default"}[around])
    inputs = list(random_inputs(graph, 0).values())
    sessions: dict[str, Any] = {}
    for side, model in sides_of(graph).items():
        work = folder / side.replace(" ", "_")
        work.mkdir(parents=True)
        built = backend.build(model, target, variant, work)
        if not isinstance(built, Built):
            raise SystemExit(built.reason)
        ends = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
        sessions[side] = backend.load(work, target, variant, *ends)
    times: dict[str, list[float]] = {side: [] for side in sessions}
    made: dict[str, list[np.ndarray]] = {}
    order, rng = list(sessions), random.Random(0)
    for _ in range(rounds + 2):
        rng.shuffle(order)
        for side in order:
            begin = time.perf_counter()
            made[side] = sessions[side].run(inputs)
            times[side].append(1e3 * (time.perf_counter() - begin))
    for one, other in zip(made[AS_WRITTEN], made[PLAIN], strict=True):
        if (error := relative_error(one, other).relative) > TOLERANCE:
            raise SystemExit(f"as written and plain differ by {error}")
    return {side: found[2:] for side, found in times.items()}


def told_ratio(ratios: np.ndarray) -> str:
    interval = bootstrap_interval(lambda drawn: np.median(ratios[drawn], axis=1), len(ratios))
    assert interval is not None
    return f"{np.median(ratios):.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--models", nargs="+", help="files or builtin:NAME, in place of the chains")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--around", choices=("bf16", "f32"), default="bf16", help="precision beside int8")
    options = parser.parse_args()
    slot = acquire_slot(timing_slots(usable_cores(), 1))
    assert slot is not None  # it waits for ever
    os.sched_setaffinity(0, slot.cores)
    print(this_machine().cpu)
    models: dict[str, onnx.ModelProto | str] = {name: chain(*shape) for name, shape in CHAINS.items()}
    if options.models:
        models = {name: name for name in options.models}
    table = Table("", AS_WRITTEN, PLAIN, NONE, "ratio")
    kept: dict[str, Mapping[str, list[float]]] = {}
    for name, model in models.items():
        with tempfile.TemporaryDirectory() as folder:
            times = measure(graph_of(model), options.around, options.rounds, Path(folder))
        kept[name] = times
        medians = (f"{np.median(times[side]):.3g}" for side in (AS_WRITTEN, PLAIN, NONE))
        table.add_row(name, *medians, told_ratio(np.array(times[AS_WRITTEN]) / np.array(times[PLAIN])))
    options.output.write_text(json.dumps({"cpu": this_machine().cpu, "around": options.around, "ms": kept}))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
