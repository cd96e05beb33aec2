"""The answer of a run as an ONNX model of one EPContext node, for the provider in ``plugins/onnxruntime_ep``.

ONNX Runtime's design of EPContext nodes defines the node: ``source`` names the provider that runs it, and
``ep_cache_context`` the folder beside the model. The folder has the plain files and ``answer.json``, whose digest is
in the node's ``notes``.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from collage_evo.digests import digest_of
from collage_evo.errors import InputError
from collage_evo.export.plain import MODEL, Exported, export_plain
from collage_evo.runtime.artifact import Artifact, read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.signature import NodeArg

FOLDER, INDEX = "pieces", "answer.json"
SOURCE = "CollageEvo"
SCHEMA = 1
_DOMAIN = "com.microsoft"


def export_context_model(run: Path, directory: Path) -> Exported:
    """Write the answer of ``run`` into ``directory``: ``model.onnx``, and beside it the folder that its node names.

    Raises:
        InputError: as :func:`export_plain`; or an input or output is no tensor, or is both.
    """
    if directory.exists():
        raise InputError(f"{directory} exists already: choose another --to, or remove it")
    artifact = read_artifact(run / BEST)
    model = _model(artifact)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as place:
        work = Path(place) / directory.name
        done = export_plain(run, work / FOLDER)
        index = json.dumps(_index(work / FOLDER, tuple(done.folders)), indent=1, ensure_ascii=False).encode()
        (work / FOLDER / INDEX).write_bytes(index)
        model.graph.node[0].attribute.append(helper.make_attribute("notes", hashlib.sha256(index).hexdigest()))
        onnx.save(model, work / MODEL)
        work.replace(directory)
    return replace(done, directory=str(directory), one_file="")


def _model(artifact: Artifact) -> onnx.ModelProto:
    program, signature = artifact.program, artifact.signature
    if both := set(program.inputs) & set(program.outputs):
        raise InputError(f"{min(both)} is an input and an output, which one node cannot have: serve the artifact")
    node = helper.make_node(
        "EPContext",
        program.inputs,
        program.outputs,
        name=SOURCE,
        domain=_DOMAIN,
        main_context=1,
        embed_mode=0,
        ep_cache_context=FOLDER,
        source=SOURCE,
        hardware_architecture=artifact.target.machine.architecture,
    )
    inputs, outputs = (
        [_value(arg, [program.tensors[arg.name].shape for program in artifact.programs]) for arg in side]
        for side in (signature.inputs, signature.outputs)
    )
    graph = helper.make_graph([node], signature.meta.graph_name or "answer", inputs, outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_DOMAIN, 1)]
    model = helper.make_model(graph, producer_name="collage_evo", ir_version=10, opset_imports=opsets)
    helper.set_model_props(model, dict(signature.meta.custom_metadata_map))
    return model


def _value(arg: NodeArg, shapes: Sequence[Sequence[int]]) -> onnx.ValueInfoProto:
    """The declaration of ``arg``, which has these ``shapes`` in the programs; open where those say otherwise than the
    person's file."""
    match = re.fullmatch(r"tensor\((\w+)\)", arg.type)
    if match is None:
        raise InputError(f"{arg.name} is {arg.type}, which an exported model does not take: serve the artifact")
    rank = len(shapes[0])
    sizes = arg.shape if len(arg.shape) == rank else [None] * rank
    declared = [
        None if isinstance(size, int) and any(shape[k] not in (-1, size) for shape in shapes) else size
        for k, size in enumerate(sizes)
    ]
    return helper.make_tensor_value_info(arg.name, TensorProto.DataType.Value(match[1].upper()), declared)


def _index(folder: Path, parts: Sequence[str]) -> dict[str, Any]:
    """Content of ``answer.json``: the folders of programs, and the digest of each file that the provider reads."""
    files = {}
    for part in parts:
        pieces = json.loads((folder / part / "pipeline.json").read_text())["pieces"]
        for name in ("pipeline.json", *(name for piece in pieces for name in piece["files"])):
            files[(Path(part) / name).as_posix()] = digest_of(folder / part / name)
    return {"schema": SCHEMA, "folders": parts, "files": files}
