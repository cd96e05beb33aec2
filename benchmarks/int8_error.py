"""How wrong is a model of which all convolutions and products run in int8, and do corrected biases pay?

    python benchmarks/int8_error.py int8_error.json FOLDER/detector FOLDER/digits ... [--samples 16] [--judged 8]

FOLDER/NAME holds a task as ``python -m contest.tasks FOLDER/NAME NAME`` (in ``benchmarks/``) makes it, with data for
calibration and other data to judge on. Quantisers are written as OpenVINO wants them and run by ONNX Runtime without
optimisations, so that rounding alone counts: nothing is timed, and every processor gives the same. With biases as
they are and corrected: the relative 2-norm error of the outputs, its median over the samples, the root of its mean
square, and the worst.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from contest.task import Task, read_task

from collage_evo.graph.ir import Graph
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.graph.reference import Reference, relative_error
from collage_evo.quantise.ranges import calibrate
from collage_evo.quantise.rules import Quantisers, Ranges, quantisable
from collage_evo.quantise.write import quantised_region
from collage_evo.target.slots import usable_cores

Feeds = Mapping[str, np.ndarray]


def samples(task: Task, path: Path, count: int) -> list[Feeds]:
    """The first ``count`` inputs of the model in ``path``."""
    with np.load(path) as arrays:
        inputs = {name: arrays[name][:count] for name in task.inputs()}
    return [{name: array[index] for name, array in inputs.items()} for index in range(count)]


def errors(graph: Graph, ranges: Ranges, judged: Sequence[Feeds], exact: Sequence[Sequence[Any]]) -> list[float]:
    """Relative error of each sample's worst output where all heavy operators that can run in int8."""
    chosen = quantisable(graph, graph.all_nodes, Quantisers.INPUTS, ranges=ranges)
    model = quantised_region(graph, graph.all_nodes, chosen, ranges, Quantisers.INPUTS)
    given, made = graph.boundary(graph.all_nodes)
    inner = dict(zip(given, (value.name for value in model.graph.input), strict=True))
    reference = Reference(model, len(usable_cores()))
    found = []
    for sample, right in zip(judged, exact, strict=True):
        outputs = dict(zip(made, reference.run({inner[name]: sample[name] for name in given}), strict=True))
        pairs = ((outputs[name], array) for name, array in zip(graph.outputs, right, strict=True))
        found.append(max(relative_error(*pair).relative for pair in pairs))
    return found


def variants(ranges: Ranges) -> Mapping[str, Ranges]:
    """Without means no bias is corrected."""
    return {"as it is": {name: found._replace(means=()) for name, found in ranges.items()}, "corrected": ranges}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--judged", type=int, default=8)
    options = parser.parse_args()
    rows: dict[str, dict[str, list[float]]] = {}
    threads = len(usable_cores())
    for folder in options.tasks:
        task = read_task(folder)
        given = samples(task, task.given, options.samples)
        prepared = prepare_model(str(task.model), {}, 0, 1, threads=threads, feeds=given[:1])
        graph = searchable(prepared, threads).graph
        judged = samples(task, task.held_out, options.judged)
        exact = [Reference(graph.model, threads).run(sample) for sample in judged]
        ranges = calibrate(graph, given, threads)
        rows[task.name] = {name: errors(graph, seen, judged, exact) for name, seen in variants(ranges).items()}
        for name, off in rows[task.name].items():
            middle, mean, worst = np.median(off), np.sqrt(np.mean(np.square(off))), max(off)
            print(f"{task.name:14} {name:9} median {middle:7.2%}  root mean square {mean:7.2%}  worst {worst:7.2%}")
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
