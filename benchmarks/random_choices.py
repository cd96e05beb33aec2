"""How well what single operators add predicts the error of several in int8, by one sample and by several.

    python benchmarks/random_choices.py choices.json FOLDER/pitch FOLDER/digits ... [--seconds 10] [--judged 96]

FOLDER/NAME holds a task as ``python -m contest.tasks FOLDER/NAME NAME`` (in ``benchmarks/``) makes it. Of random
choices among its heavy operators, all of them first: the root of the sum of their shares (``transforms/shares.py``)
over the relative error of all judged samples together. ONNX Runtime without optimisations computes both; nothing is
timed. Printed are the geometric mean of that ratio and the standard deviation of its logarithm.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
from contest.task import Task, read_task
from int8_error import errors, samples

from collage_evo.graph.ir import Graph, NodeSet, members, node_set
from collage_evo.graph.load import ModelFile
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.graph.reference import Reference
from collage_evo.quantise.arithmetic import Arithmetic
from collage_evo.quantise.ranges import calibrate
from collage_evo.quantise.rules import Quantisers, quantisable
from collage_evo.quantise.write import quantised_region
from collage_evo.transforms.shares import error_shares

CALIBRATED, CHOICES = 48, 9


def choices(nodes: NodeSet) -> Iterator[NodeSet]:
    """All of ``nodes``, then some of them: 30 to 70 %."""
    draw = Random(0)
    yield nodes
    for number in range(1, CHOICES):
        chosen = node_set(node for node in members(nodes) if draw.random() < 0.3 + 0.1 * (number % 5))
        if chosen:
            yield chosen


def pooled(singles: list[float], norms: list[float]) -> float:
    """The relative error of all samples together, from each one's and the norms of what they ought to give."""
    return math.sqrt(sum((e * n) ** 2 for e, n in zip(singles, norms, strict=True)) / sum(n * n for n in norms))


def ratios(task: Task, seconds: float, judged: int) -> dict[str, list[float]]:
    """Predicted over true error of each choice: by the first sample, and by as many as there is time for."""
    given, others = samples(task, task.given, CALIBRATED), samples(task, task.held_out, judged)
    model = prepare_model(ModelFile(str(task.model)), {}, 1, threads=1, feeds=given[:1])
    graph: Graph = searchable(model, 1).graph
    exact = [Reference(graph.model, 1).run(sample) for sample in others]
    norms = [max(float(np.linalg.norm(np.asarray(array, np.float64))) for array in made) for made in exact]
    ranges = calibrate(graph, given, 1)
    heavy = quantisable(graph, graph.all_nodes, Quantisers.INPUTS, ranges=ranges)
    shares = {
        name: error_shares(graph, ranges, feeds, 1, 2 * seconds, {Arithmetic.INT8: heavy})[Arithmetic.INT8]
        for name, feeds in (("first", given[:1]), ("several", given))
    }
    found: dict[str, list[float]] = {name: [] for name in shares}
    for chosen in choices(heavy):
        written = quantised_region(graph, graph.all_nodes, chosen, ranges, Quantisers.INPUTS)
        true = pooled(errors(graph, written, others, exact), norms)
        for name, share in shares.items():
            found[name].append(math.sqrt(sum(share[node] for node in members(chosen))) / true)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0, help="for further samples")
    parser.add_argument("--judged", type=int, default=96, help="samples that choose nothing")
    options = parser.parse_args()
    rows = {}
    for task in map(read_task, options.tasks):
        rows[task.name] = found = ratios(task, options.seconds, options.judged)
        told = []
        for name, values in found.items():
            logs = np.log(np.maximum(values, 1e-9))
            told.append(f"{name} {math.exp(logs.mean()):.2f} ({logs.std():.2f})")
        print(f"{task.name}: {', '.join(told)}", flush=True)
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
