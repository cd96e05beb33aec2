"""The answer of a run as an ONNX file whose nodes carry their region and backend, for viewers such as Netron."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from collage_evo.backends.capabilities import lanes_of
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import arithmetic_of
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import recorded_regions
from collage_evo.graph.convert.origin import node_names
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import members
from collage_evo.graph.load.files import read_model, save_model
from collage_evo.models.builder import refill
from collage_evo.patterns.match import Region
from collage_evo.report.places import home_of
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.program import Piece

IR_VERSION = 10
"""The first opset in which nodes have metadata."""


@dataclass(frozen=True)
class Export:
    """Result of an export.

    Attributes:
        file: the ONNX file.
        nodes: number of nodes by backend.
        regions: number of regions.
    """

    file: str
    nodes: Mapping[str, int]
    regions: int


def export_onnx(run: Path, file: Path) -> Export:
    """Write the model of the answer of ``run`` as ``file``: normalised if it is a placement.

    Every node carries ``collage_evo.region``, ``collage_evo.backend``, ``collage_evo.variant``,
    ``collage_evo.precision``, and ``collage_evo.lanes`` if parts of the region run in parallel.

    Raises:
        InputError: the run has no answer, its model is gone, or ``file`` exists already.
    """
    artifact = read_artifact(run / BEST)
    name = "original.onnx" if "baseline" in artifact.profiles[0].info else "normalised.onnx"
    source = home_of(run) / "work" / name
    if not source.exists():
        raise InputError(f"the export needs {source}, which is missing: run the search again")
    if file.exists():
        raise InputError(f"{file} exists already: choose another --onnx, or remove it")
    model = read_model(source)
    pieces = artifact.program.pieces
    annotate(model, pieces, recorded_regions(artifact.profiles[0].info, len(pieces)))
    model.ir_version = max(model.ir_version, IR_VERSION)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_model(model, file, in_one=True)
    counts = Counter(piece.backend for piece in pieces for _ in piece.nodes)
    return Export(str(file), dict(counts), len(pieces))


def annotate(model: onnx.ModelProto, pieces: tuple[Piece, ...], regions: tuple[Region, ...] = ()) -> None:
    """Annotate each node of ``model``, in place, with the piece that contains it; ``regions``: what that was compiled
    from, if it is not the user's file.

    Raises:
        InputError: a piece has a node that the model lacks.
    """
    nodes, precisions = dict(zip(node_names(model), model.graph.node, strict=True)), _precisions(model, regions)
    for region, piece in enumerate(pieces):
        side_by_side = len(lanes_of(get_backend(piece.backend), piece.directory))
        lanes = {"collage_evo.lanes": str(side_by_side)} if side_by_side else {}
        for name in piece.nodes:
            if name not in nodes:
                raise InputError(f"the model has no node {name!r}, which the answer places: run the search again")
            notes = {
                "collage_evo.region": str(region),
                "collage_evo.backend": piece.backend,
                "collage_evo.variant": piece.variant,
                "collage_evo.precision": precisions.get(name, arithmetic_of(piece.backend, piece.variant).value),
                **lanes,
            }
            properties = [prop for prop in nodes[name].metadata_props if prop.key not in notes]
            properties += [onnx.StringStringEntryProto(key=key, value=value) for key, value in notes.items()]
            refill(nodes[name].metadata_props, properties)


def _precisions(model: onnx.ModelProto, regions: tuple[Region, ...]) -> dict[str, str]:
    """Names of the nodes whose region has them in another precision than its variant's, with that."""
    lower = [(kind.value, set(members(nodes))) for region in regions for kind, nodes in region.numerics]
    graph = build_graph(model).nodes if lower else ()
    return {name: kind for kind, nodes in lower for node in graph if node.index in nodes for name in node.names}
