"""Regions on lanes against each library on all cores: every region that the backend ``lanes`` proposes for a model.

    python benchmarks/lane_regions.py regions.json [--models builtin:inception_v1 ...] [--threads 2] [--most 16]

A region stands alone, in an artifact of its own, as the search measures it; contestants take turns in processes of
their own. ``--most``: regions of a model, those with the most arithmetic first. Given are the times of the best
library and of the best on lanes, and their ratio, paired by round: over 1, lanes are faster.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from turns import Rounds, median_ms, ratio, take_turns

from collage_evo.backends.base import BuildFailure
from collage_evo.backends.lanes import LanesBackend
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import piece_variants
from collage_evo.backends.variants import engine_name
from collage_evo.graph.extract import extract
from collage_evo.graph.ir import Graph, NodeSet
from collage_evo.graph.load import load_model
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.graph.roofline import multiply_adds
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.program import Piece, Program
from collage_evo.target.slots import usable_cores
from collage_evo.target.target import Target

MODELS = tuple(map("builtin:{}".format, ("inception_v1", "squeezenet", "nasnet_a", "two_tower", "bert?layers=1")))
LIBRARIES = ("openvino", "onnxruntime")


def proposed(graph: Graph, most: int) -> list[NodeSet]:
    """What lanes are tried with: node sets, those with the most arithmetic first."""
    lanes = LanesBackend()
    found = {nodes for pattern in lanes.patterns() for nodes in pattern.find(graph, graph.all_nodes)}
    whole = (nodes for nodes in found if graph.is_convex(nodes) and graph.is_connected(nodes))
    return sorted(whole, key=lambda nodes: (-multiply_adds(graph, nodes), nodes))[:most]


def engines_of(graph: Graph, nodes: NodeSet, threads: int) -> Iterator[tuple[str, str]]:
    """Each library as it usually is, and lanes of their pieces, in float32."""
    for backend in map(get_backend, LIBRARIES):
        yield backend.name, backend.variants[0].name
    lanes = LanesBackend()
    for variant in piece_variants(lanes, graph, nodes, "cpu", 0.0) if threads > 1 else ():
        if lanes.stands_on(variant)[0] in LIBRARIES:
            yield lanes.name, variant.name


def artifact_of(graph: Graph, nodes: NodeSet, engine: tuple[str, str], target: Target, folder: Path) -> Path | None:
    """The region compiled by ``engine``, as an artifact; None where it cannot be built, which is said."""
    backend, variant = get_backend(engine[0]), engine[1]
    work, path = folder / "piece", folder / "region.collage"
    work.mkdir(parents=True)
    built = backend.build(extract(graph, nodes), target, backend.variant(variant), work)
    if isinstance(built, BuildFailure):
        print(f"{engine_name(*engine)}: {built.reason}")
        return None
    inputs, outputs = graph.boundary(nodes)
    piece = Piece(work, *engine, inputs, outputs, backend_version=backend.version_of(backend.variant(variant)))
    tensors = {name: graph.tensors[name] for name in (*inputs, *outputs)}
    write_artifact(path, [Profile(Program((piece,), inputs, outputs, tensors))], target)
    return path


def race(
    graph: Graph, nodes: NodeSet, target: Target, rounds: int, seconds: float
) -> tuple[Rounds, Mapping[str, tuple[str, str]]]:
    """Turns of each engine that builds the region, and which engine each name stands for."""
    engines = {engine_name(*engine): engine for engine in engines_of(graph, nodes, target.threads)}
    with tempfile.TemporaryDirectory() as work:
        made = {
            name: artifact_of(graph, nodes, engine, target, Path(work) / str(number))
            for number, (name, engine) in enumerate(engines.items())
        }
        sides = {name: ["execute", str(path)] for name, path in made.items() if path is not None}
        return take_turns(sides, usable_cores()[: target.threads], rounds, seconds), engines


def told(rounds: Rounds, engines: Mapping[str, tuple[str, str]]) -> tuple[str, str, str]:
    """The best library with its ms, the best lanes with theirs, and the ratio of both."""
    libraries, lanes = ([n for n in rounds if (engines[n][0] == "lanes") == on] for on in (False, True))
    best = min(libraries, key=lambda name: median_ms(rounds, name))
    ours = min(lanes, key=lambda name: median_ms(rounds, name), default=None)
    single = f"{best} {median_ms(rounds, best):.3f}"
    if ours is None:
        return single, "-", "-"
    return single, f"{ours} {median_ms(rounds, ours):.3f}", str(ratio(rounds, best, ours))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15, help="length of a turn")
    options = parser.parse_args()
    target = Target.here("cpu", options.threads)
    rows: list[dict[str, object]] = []
    table = Table("model", "operators", "best library, ms", "best on lanes, ms", "library over lanes")
    for source in options.models:
        graph = build_graph(normalise(load_model(source).original))
        for nodes in proposed(graph, options.most):
            rounds, engines = race(graph, nodes, target, options.rounds, options.seconds)
            line: Sequence[str] = (source, str(nodes.bit_count()), *told(rounds, engines))
            table.add_row(*line)
            print("; ".join(line), flush=True)
            turns = {name: [asdict(turn) for turn in of] for name, of in rounds.items()}
            rows.append({"model": source, "nodes": f"{nodes:x}", "turns": turns})
            options.output.write_text(json.dumps(rows))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
