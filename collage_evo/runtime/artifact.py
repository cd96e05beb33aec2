"""The artifact on disk: writes a program as a ``.collage`` directory, reads it back after checking every file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from collage_evo.backends.base import Target
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError, UnavailableError
from collage_evo.graph.ir import OPAQUE, Tensor
from collage_evo.runtime.machine import this_machine, vector_features
from collage_evo.runtime.session import Piece, Program, Session

SCHEMA = 2
MANIFEST = "manifest.json"
DTYPES = frozenset(
    {
        *("float16", "float32", "float64", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("complex64", "complex128", "bfloat16"),
    }
)
"""What a tensor with a buffer may hold: plain numbers. What is ``OPAQUE`` never has a buffer."""


@dataclass(frozen=True)
class Artifact:
    """What a manifest says: the program, the target and machine it was made for, information about its making."""

    program: Program
    target: Target
    architecture: str
    features: frozenset[str]
    info: Mapping[str, Any]


def write_artifact(directory: Path, program: Program, target: Target, info: Mapping[str, Any]) -> None:
    """Copy the program's pieces into ``directory`` and describe them in its manifest.

    The directory appears whole or not at all; one that exists is replaced.
    """
    work = directory.with_name(directory.name + ".tmp")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    regions = []
    for index, piece in enumerate(program.pieces):
        place = f"regions/{index:03d}_{piece.backend}"
        shutil.copytree(piece.directory, work / place)
        regions.append(
            {
                "directory": place,
                "backend": piece.backend,
                "variant": piece.variant,
                "backend_version": piece.backend_version,
                "inputs": piece.inputs,
                "outputs": piece.outputs,
                "nodes": piece.nodes,
            }
        )
    machine = this_machine()
    manifest = {
        "schema": SCHEMA,
        "target": {"device": target.device, "threads": target.threads, "cores": target.cores},
        "machine": {"architecture": machine.architecture, "features": sorted(vector_features(machine))},
        "inputs": program.inputs,
        "outputs": program.outputs,
        "tensors": {t.name: {"dtype": t.dtype, "shape": t.shape} for t in program.tensors.values()},
        "regions": regions,
        "files": {str(p.relative_to(work)): _digest(p) for p in sorted(work.rglob("*")) if p.is_file()},
        "info": dict(info),
    }
    (work / MANIFEST).write_text(json.dumps(manifest, indent=1))
    if directory.exists():
        shutil.rmtree(directory)
    os.replace(work, directory)


def read_artifact(directory: Path) -> Artifact:
    """Read and check a manifest and every file it lists.

    Raises:
        InputError: not an artifact, of another schema, or a file is missing, changed or outside it.
    """
    data = _manifest(directory)
    try:
        _check_files(directory, data["files"])
        tensors = {name: _tensor(name, value["dtype"], value["shape"]) for name, value in data["tensors"].items()}
        pieces = tuple(_piece(directory, region, tensors) for region in data["regions"])
        program = Program(pieces, _names(data["inputs"], tensors), _names(data["outputs"], tensors), tensors)
        where, machine = data["target"], data["machine"]
        target = Target(str(where["device"]), int(where["threads"]), tuple(map(int, where["cores"])))
        features = frozenset(map(str, machine["features"]))
        return Artifact(program, target, str(machine["architecture"]), features, dict(data["info"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{directory / MANIFEST} is damaged ({type(error).__name__}: {error}): run the search again"
        ) from error


def load_artifact(directory: Path) -> Session:
    """Open an artifact for inference.

    Raises:
        InputError: see :func:`read_artifact`.
        UnavailableError: this machine lacks instructions it was made with; or one of its backends is not
            installed, or in another version.
    """
    artifact = read_artifact(directory)
    _require_machine(directory, artifact)
    for piece in artifact.program.pieces:
        probe = get_backend(piece.backend).probe()
        if not probe.available:
            raise UnavailableError(f"{directory} needs the backend '{piece.backend}': {probe.reason}")
        if probe.version != piece.backend_version:
            raise UnavailableError(
                f"{directory} was made with {piece.backend} {piece.backend_version}, here is {probe.version}: "
                "install that version, or run the search again"
            )
    return Session(artifact.program, artifact.target)


def _require_machine(directory: Path, artifact: Artifact) -> None:
    here = this_machine()
    if here.architecture != artifact.architecture:
        raise UnavailableError(
            f"{directory} was made for {artifact.architecture}, this machine is {here.architecture}: "
            "run the search on this machine"
        )
    if missing := here.lacks(artifact.features):
        raise UnavailableError(
            f"{directory} was made on a CPU with {', '.join(missing)}, which this one lacks: "
            "run the search on this machine"
        )


def _piece(directory: Path, region: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Piece:
    return Piece(
        _inside(directory, region["directory"]),
        str(region["backend"]),
        str(region["variant"]),
        _names(region["inputs"], tensors),
        _names(region["outputs"], tensors),
        tuple(map(str, region["nodes"])),
        str(region["backend_version"]),
    )


def _tensor(name: str, dtype: str, shape: Sequence[int]) -> Tensor:
    if dtype not in DTYPES and dtype != OPAQUE:
        raise ValueError(f"tensor {name} is {dtype}")
    if not all(isinstance(size, int) and size >= -1 for size in shape):
        raise ValueError(f"tensor {name} has shape {shape}")
    return Tensor(name, dtype, tuple(shape))


def _names(names: Sequence[str], tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    if unknown := [name for name in names if name not in tensors]:
        raise ValueError(f"no tensor {unknown[0]}")
    return tuple(names)


def _manifest(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise InputError(f"no artifact at {directory}: give the .collage directory that a run wrote")
    try:
        data = json.loads((directory / MANIFEST).read_text())
        schema = data["schema"]
    except FileNotFoundError:
        raise InputError(f"{directory} holds no {MANIFEST}: it is not an artifact, or not a whole one") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{directory / MANIFEST} is damaged: run the search again, or copy it again") from None
    if schema != SCHEMA:
        raise InputError(
            f"{directory} has schema {schema}, this version reads {SCHEMA}: "
            "use the version that made it, or run the search again"
        )
    missing = {"target", "machine", "inputs", "outputs", "tensors", "regions", "files", "info"} - set(data)
    if missing:
        raise InputError(f"{directory / MANIFEST} lacks '{sorted(missing)[0]}': run the search again")
    return dict(data)


def _check_files(directory: Path, files: Mapping[str, str]) -> None:
    for name, digest in files.items():
        path = _inside(directory, name)
        if not path.is_file():
            raise InputError(f"{directory} lacks {name}: copy the artifact again, or run the search again")
        if _digest(path) != digest:
            raise InputError(f"{name} in {directory} was changed: copy the artifact again, or run the search again")
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if not path.is_dir() and name != MANIFEST and name not in files:
            raise InputError(f"{directory} holds {name}, which its manifest does not list: do not use it")


def _inside(directory: Path, name: str) -> Path:
    """``directory / name``, refused where that would lie outside: a manifest may come from anywhere."""
    relative = PurePosixPath(name)
    path = directory / relative
    if relative.is_absolute() or ".." in relative.parts or not path.resolve().is_relative_to(directory.resolve()):
        raise InputError(f"the manifest of {directory} names '{name}', outside the artifact: do not use it")
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
