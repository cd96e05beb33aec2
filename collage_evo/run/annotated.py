"""The user's model as an ONNX file whose nodes carry their region and backend, for viewers such as Netron."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from collage_evo.backends.capabilities import lanes_of
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import arithmetic_of
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import recorded_regions
from collage_evo.graph.convert.origin import Fate, name_nodes, node_names
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import members
from collage_evo.graph.load.files import read_model, save_model
from collage_evo.models.builder import refill
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Region
from collage_evo.report.places import ANNOTATED, home_of
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.program import Piece

IR_VERSION = 10
"""The first opset in which nodes have metadata."""
MOST_BYTES = 2**28
"""Bytes of a model from which a run writes no copy of it."""


@dataclass(frozen=True)
class Export:
    """Result of an export.

    Attributes:
        file: the ONNX file.
        nodes: number of nodes by backend, in the graph that runs.
        regions: number of regions.
    """

    file: str
    nodes: Mapping[str, int]
    regions: int


def export_onnx(run: Path, file: Path) -> Export:
    """Write the user's model, with the shapes of the run, as ``file``, annotated with the answer of ``run``.

    Every node carries ``collage_evo.region``, ``collage_evo.backend``, ``collage_evo.variant``,
    ``collage_evo.precision``, and ``collage_evo.lanes`` if parts of the region run in parallel; one that the run's
    simplified graph lacks carries those of the nodes that do its work, and ``collage_evo.simplified``, what became of
    it.

    Raises:
        InputError: the run has no answer, or its model is gone.
    """
    artifact, model = read_artifact(run / BEST), _source(run, "original.onnx")
    info, pieces = artifact.profiles[0].info, artifact.program.pieces
    compiled = _source(run, "original.onnx" if "baseline" in info else "normalised.onnx")
    fates = name_nodes(model, compiled).fates  # those of nodes in bodies follow
    notes = _notes(compiled, pieces, recorded_regions(info, len(pieces)))
    for proto, fate in zip(model.graph.node, fates, strict=False):
        carried = _carried(fate, notes)
        properties = [prop for prop in proto.metadata_props if prop.key not in carried]
        properties += [onnx.StringStringEntryProto(key=key, value=value) for key, value in carried.items()]
        refill(proto.metadata_props, properties)
    model.ir_version = max(model.ir_version, IR_VERSION)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_model(model, file, in_one=True)
    return Export(str(file), Counter(piece.backend for piece in pieces for _ in piece.nodes), len(pieces))


def write_annotated(run: Path) -> bool:
    """Write ``annotated.onnx`` of the answer of ``run`` into its directory, in place of that of an earlier one.

    Returns whether the model's weights are small enough; raises as :func:`export_onnx`.
    """
    work = home_of(run) / "work"
    fresh, sources = work / ANNOTATED, (*work.glob("original.onnx"), *work.glob("original.onnx.data/*"))
    (run / ANNOTATED).unlink(missing_ok=True)  # it may be of an earlier answer
    if light := sum(source.stat().st_size for source in sources) < MOST_BYTES:
        try:
            export_onnx(run, fresh)
            fresh.replace(run / ANNOTATED)  # whole, or not at all where the time of the run is over
        finally:
            fresh.unlink(missing_ok=True)
    return light


def _source(run: Path, name: str) -> onnx.ModelProto:
    source = home_of(run) / "work" / name
    if not source.exists():
        raise InputError(f"the export needs {source}, which is missing: run the search again")
    return read_model(source)


def _carried(fate: Fate, notes: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """What a node of the user's model carries: the values of the nodes that do its work, each once."""
    pairs = (pair for name in fate.nodes if not fate.constant for pair in notes.get(name, {}).items())
    carried = {key: ", ".join(dict.fromkeys(values)) for key, values in multimap(pairs).items()}
    return carried if fate.is_preserved else {**carried, "collage_evo.simplified": fate.description}


def _notes(
    model: onnx.ModelProto, pieces: Sequence[Piece], regions: tuple[Region, ...]
) -> Mapping[str, Mapping[str, str]]:
    """What the nodes of ``model`` carry that ``pieces`` contain, by name and key; ``regions``: what those were
    compiled from, if it is not the user's file.

    Raises:
        InputError: a piece has a node that the model lacks.
    """
    names, precisions = set(node_names(model)), _precisions(model, regions)
    notes: dict[str, Mapping[str, str]] = {}
    for region, piece in enumerate(pieces):
        lanes = len(lanes_of(get_backend(piece.backend), piece.directory))
        computes_in = arithmetic_of(piece.backend, piece.variant).value
        for name in piece.nodes:
            if name not in names:
                raise InputError(f"the model has no node {name!r}, which the answer places: run the search again")
            notes[name] = {
                "collage_evo.region": str(region),
                "collage_evo.backend": piece.backend,
                "collage_evo.variant": piece.variant,
                "collage_evo.precision": precisions.get(name, computes_in),
                **({"collage_evo.lanes": str(lanes)} if lanes else {}),
            }
    return notes


def _precisions(model: onnx.ModelProto, regions: tuple[Region, ...]) -> dict[str, str]:
    """Names of the nodes whose region has them in another precision than its variant's, with that."""
    lower = [(kind.value, set(members(nodes))) for region in regions for kind, nodes in region.numerics]
    graph = build_graph(model).nodes if lower else ()
    return {name: kind for kind, nodes in lower for node in graph if node.index in nodes for name in node.names}
