"""How wrong is a model of which all convolutions and products run in int8, and do corrected biases pay?

    python benchmarks/int8_error.py int8_error.json FOLDER/detector FOLDER/digits ... [--samples 16] [--judged 8]

FOLDER/NAME holds a task as ``python -m contest.tasks FOLDER/NAME NAME`` (in ``benchmarks/``) makes it, with data for
calibration and other data to judge on. Quantisers are written as OpenVINO wants them and run by ONNX Runtime without
optimisations, so that rounding alone counts: nothing is timed, and every processor gives the same. With biases as
they are, with corrected ones, and with exact weights, which leaves what rounded activations do: the relative 2-norm
error of the outputs, its median over the samples, the root of its mean square, and the worst.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from contest.task import Task, read_task
from onnx import numpy_helper

from collage_evo.graph.extract import extract
from collage_evo.graph.ir import Graph
from collage_evo.graph.load import ModelFile
from collage_evo.graph.operators import HEAVY
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


def errors(
    graph: Graph, model: onnx.ModelProto, judged: Sequence[Feeds], exact: Sequence[Sequence[Any]]
) -> list[float]:
    """Relative error of each sample's worst output where ``model`` runs in place of ``graph``."""
    given, made = graph.boundary(graph.all_nodes)
    inner = dict(zip(given, (value.name for value in model.graph.input), strict=True))
    reference = Reference(model, len(usable_cores()))
    found = []
    for sample, right in zip(judged, exact, strict=True):
        outputs = dict(zip(made, reference.run({inner[name]: sample[name] for name in given}), strict=True))
        pairs = ((outputs[name], array) for name, array in zip(graph.outputs, right, strict=True))
        found.append(max(relative_error(*pair).relative for pair in pairs))
    return found


def variants(graph: Graph, ranges: Ranges) -> Iterator[tuple[str, onnx.ModelProto]]:
    """All heavy operators that can in int8. Without means no bias is corrected."""
    chosen = quantisable(graph, graph.all_nodes, Quantisers.INPUTS, ranges=ranges)
    plain = {name: found._replace(means=()) for name, found in ranges.items()}
    for name, seen in (("as it is", plain), ("corrected", ranges)):
        yield name, quantised_region(graph, graph.all_nodes, chosen, seen, Quantisers.INPUTS)
    model = quantised_region(graph, graph.all_nodes, chosen, plain, Quantisers.INPUTS)
    yield "exact weights", with_exact_weights(model, graph)


def with_exact_weights(model: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """``model``, changed in place: its heavy operators read the weights of ``graph`` as they are."""
    plain = extract(graph, graph.all_nodes).graph
    heavy = ([node for node in nodes if node.op_type in HEAVY] for nodes in (model.graph.node, plain.node))
    for written, given in zip(*heavy, strict=True):
        written.input[1] = given.input[1]
        if written.op_type == "Gemm":
            del written.input[2:]
            written.input.extend(given.input[2:])
    _with_zero_points(model)
    known = {tensor.name for tensor in model.graph.initializer}
    model.graph.initializer.extend(tensor for tensor in plain.initializer if tensor.name not in known)
    return model


def _with_zero_points(model: onnx.ModelProto) -> None:
    """Products read numbers as they are, not from zero, of which their bias takes out what *rounded* weights add."""
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and len(node.input) == 2:
            node.input.append(f"{node.input[0].removesuffix('_q')}_zero")
    taken_out = {node.input[1] for node in model.graph.node if node.input and node.input[0].endswith("_product")}
    for tensor in model.graph.initializer:
        if tensor.name in taken_out:
            tensor.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(tensor)), tensor.name))


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
        prepared = prepare_model(ModelFile(str(task.model)), {}, 1, threads=threads, feeds=given[:1])
        graph = searchable(prepared, threads).graph
        judged = samples(task, task.held_out, options.judged)
        exact = [Reference(graph.model, threads).run(sample) for sample in judged]
        ranges = calibrate(graph, given, threads)
        rows[task.name] = {name: errors(graph, model, judged, exact) for name, model in variants(graph, ranges)}
        for name, off in rows[task.name].items():
            middle, mean, worst = np.median(off), np.sqrt(np.mean(np.square(off))), max(off)
            print(f"{task.name:14} {name:13} median {middle:7.2%}  root mean square {mean:7.2%}  worst {worst:7.2%}")
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
