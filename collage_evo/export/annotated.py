"""The answer of a run as an ONNX file whose nodes carry their region and backend.

Netron shows a node's metadata. ONNX Runtime assigns nodes to its execution providers by the annotation ``layer_ann``
and the session option ``session.layer_assignment_settings``, as its guide "Graph Partitioning with Annotations and
Memory Constraints" documents. ONNX Runtime 1.31.1 maps the rules to its own CPU provider and to OpenVINO's plugin
(1.8.1), but then cannot create a session in which that plugin has some of the nodes and not all: its partitioner
stops at an assertion of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import helper

from collage_evo.backends.capabilities import lanes_of
from collage_evo.backends.cuda.onnxruntime import available_providers
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.errors import InputError
from collage_evo.graph.convert.origin import node_names
from collage_evo.graph.load.files import read_model, save_model
from collage_evo.report.places import home_of
from collage_evo.runtime.artifact import Artifact, read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.program import Piece
from collage_evo.target.target import CPU

ANNOTATION = "layer_ann"
SETTINGS = "session.layer_assignment_settings"
IR_VERSION = 10
"""The first opset in which nodes have metadata."""


@dataclass(frozen=True)
class Export:
    """Result of an export.

    Attributes:
        file: the ONNX file.
        nodes: number of nodes by backend.
        regions: number of regions.
        settings: the session option that assigns nodes to ONNX Runtime's execution providers.
        absent: execution providers in ``settings`` that the ONNX Runtime installed here lacks, as most have few.
        without_provider: backends without an execution provider; ONNX Runtime places their nodes.
    """

    file: str
    nodes: Mapping[str, int]
    regions: int
    settings: str
    absent: tuple[str, ...]
    without_provider: tuple[str, ...]


def export_onnx(run: Path, file: Path) -> Export:
    """Write the model of the answer of ``run`` as ``file``: normalised if it is a placement.

    Every node carries ``collage_evo.region``, ``collage_evo.backend``, ``collage_evo.variant``, and the backend once
    more as ``layer_ann``, and ``collage_evo.lanes`` if parts of the region run in parallel; the model carries the
    session option.

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
    annotate(model, pieces)
    settings = assignment(artifact)
    helper.set_model_props(model, {prop.key: prop.value for prop in model.metadata_props} | {SETTINGS: settings})
    model.ir_version = max(model.ir_version, IR_VERSION)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_model(model, file, in_one=True)
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts[piece.backend] += len(piece.nodes)
    others = tuple(dict.fromkeys(piece.backend for piece in pieces if _provider(piece) is None))
    wanted = dict.fromkeys(filter(None, map(_provider, pieces)))
    here = available_providers()
    absent = tuple(name for name in wanted if name not in here)
    return Export(str(file), dict(counts), len(pieces), settings, absent, others)


def annotate(model: onnx.ModelProto, pieces: tuple[Piece, ...]) -> None:
    """Annotate each node of ``model``, in place, with the piece that contains it.

    Raises:
        InputError: a piece has a node that the model lacks.
    """
    nodes = dict(zip(node_names(model), model.graph.node, strict=True))
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
                ANNOTATION: _label(piece),
                **lanes,
            }
            properties = [prop for prop in nodes[name].metadata_props if prop.key not in notes]
            properties += [onnx.StringStringEntryProto(key=key, value=value) for key, value in notes.items()]
            del nodes[name].metadata_props[:]
            nodes[name].metadata_props.extend(properties)


def assignment(artifact: Artifact) -> str:
    """The value of ``session.layer_assignment_settings``: for each execution provider the annotations it runs.

    Annotations match exactly (``=``). Providers are named explicitly: ``cpu`` would be the first that computes on the
    processor, whichever that is.
    """
    annotations: dict[str, list[str]] = {}
    for label, provider in {_label(piece): _provider(piece) for piece in artifact.program.pieces}.items():
        if provider:
            annotations.setdefault(provider, []).append(f"={label}")
    return "; ".join(f"{provider}({', '.join(names)})" for provider, names in annotations.items())


def _label(piece: Piece) -> str:
    """The piece's backend, and its device if that is not the host."""
    device = device_of(piece.backend, piece.variant)
    return piece.backend if device == CPU else f"{piece.backend}-{device}"


def _provider(piece: Piece) -> str | None:
    return get_backend(piece.backend).execution_providers.get(device_of(piece.backend, piece.variant))
