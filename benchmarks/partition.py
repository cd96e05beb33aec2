"""A hand-made placement on the runtime, on a naive loop, and each backend alone; with page faults.

    python benchmarks/partition.py partition.json [--threads 1] [--rounds 9]

ResNet-50: its 3x3 convolutions with stride 1 and at most 256 channels on ncnn, each with the Relu that follows; all
else on ONNX Runtime. The naive loop runs the same compiled regions through each library's plain call, every region
with fresh outputs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from turns import faults_per_run, median_ms, ratio, take_turns

from collage_evo.backends.base import BuildFailure
from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.fitness.build.cache import PieceCache
from collage_evo.fitness.build.compiler import Compiler
from collage_evo.graph.ir import Graph, Node, members
from collage_evo.patterns.match import Placement, Region
from collage_evo.report.progress import LineReporter
from collage_evo.run.open import open_run
from collage_evo.run.stages.model import normalise
from collage_evo.run.stages.singles import measure_baselines
from collage_evo.runtime.artifact import Profile, write_artifact

MOST_CHANNELS = 256


def is_chosen(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is one of the convolutions that ncnn's Winograd is good at."""
    if node.op_type != "Conv":
        return False
    channels, _, *kernel = graph.tensors[node.inputs[1]].shape
    strides = node.attributes.get("strides", [1, 1])
    return kernel == [3, 3] and list(strides) == [1, 1] and channels <= MOST_CHANNELS


def partition(graph: Graph) -> Placement:
    """The chosen convolutions with their Relu, and between them as few regions of ONNX Runtime as possible."""
    special: dict[int, int] = {}
    for node in graph.nodes:
        if is_chosen(graph, node):
            nodes = 1 << node.index
            readers = graph.consumers.get(node.outputs[0], ())
            if len(readers) == 1 and graph.nodes[readers[0]].op_type == "Relu":
                nodes |= 1 << readers[0]
            special[node.index] = nodes
    taken = 0
    for nodes in special.values():
        taken |= nodes
    regions: list[Region] = []
    others = 0
    # In topological order, an ONNX Runtime region ends where a chosen convolution needs its result.
    for node in graph.nodes:
        if node.index in special:
            if others:
                regions.append(Region(others, "onnxruntime", "default"))
            regions.append(Region(special[node.index], "ncnn", "default"))
            others = 0
        elif not taken >> node.index & 1:
            others |= 1 << node.index
    if others:
        regions.append(Region(others, "onnxruntime", "default"))
    return Placement(tuple(regions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    data = {"model": {"source": "builtin:resnet50"}, "target": {"threads": options.threads}}
    config = parse_config(data, (), "benchmark")
    with tempfile.TemporaryDirectory() as work, open_run(config, Path(work), LineReporter()) as (context, model):
        graph = normalise(context, model).graph
        baselines = measure_baselines(context, select_backends(("onnxruntime", "ncnn", "openvino")))
        placement = partition(graph)
        compiler = Compiler(context.target, PieceCache(Path(context.setting.cache), context.setting.cache_bytes))
        program = compiler.placement(graph, placement)
        if isinstance(program, BuildFailure):
            raise SystemExit(program.reason)
        artifact = Path(work) / "partition.collage"
        write_artifact(artifact, [Profile(program)], context.target)
        sides = {
            "this runtime": ["session", str(artifact)],
            "this runtime, loop only": ["execute", str(artifact)],
            "naive loop": ["naive", str(artifact)],
        }
        sides |= {f"{b.name} alone": ["session", str(b.artifact)] for b in baselines if not b.outcome.reason}
        found = take_turns(sides, context.pool.slots[0], options.rounds, 0.6)
    ours = [r for r in placement.regions if r.backend == "ncnn"]
    print(f"{len(placement.regions)} regions, {len(ours)} of them on ncnn")
    print(f"{sum(1 for r in ours for i in members(r.nodes) if graph.nodes[i].op_type == 'Conv')} convolutions")
    for name in sides:
        print(
            f"{name}: {median_ms(found, name):.2f} ms, {ratio(found, name, 'this runtime')} of the placement's time, "
            f"page faults a run {faults_per_run(found, name):.1f}"
        )
    options.output.write_text(json.dumps({name: [asdict(turn) for turn in found[name]] for name in found}))


if __name__ == "__main__":
    main()
