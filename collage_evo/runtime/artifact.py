"""The artifact on disk: writes a program as a ``.collage`` directory, reads it back after checking every file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from collage_evo.backends.base import Target
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError, UnavailableError
from collage_evo.graph.ir import Tensor
from collage_evo.runtime.session import Piece, Program, Session

SCHEMA = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Artifact:
    """What a manifest says: the program, the target it was made for and free information about its making."""

    program: Program
    target: Target
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
    manifest = {
        "schema": SCHEMA,
        "target": {"device": target.device, "threads": target.threads, "cores": target.cores},
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
    _check_files(directory, data["files"])
    tensors = {
        name: Tensor(name, str(t["dtype"]), tuple(int(d) for d in t["shape"])) for name, t in data["tensors"].items()
    }
    pieces = tuple(
        Piece(
            _inside(directory, region["directory"]),
            region["backend"],
            region["variant"],
            tuple(region["inputs"]),
            tuple(region["outputs"]),
            tuple(region["nodes"]),
            region["backend_version"],
        )
        for region in data["regions"]
    )
    program = Program(pieces, tuple(data["inputs"]), tuple(data["outputs"]), tensors)
    where = data["target"]
    target = Target(where["device"], int(where["threads"]), tuple(where["cores"]))
    return Artifact(program, target, data["info"])


def load_artifact(directory: Path) -> Session:
    """Open an artifact for inference.

    Raises:
        InputError: see :func:`read_artifact`.
        UnavailableError: one of its backends is not installed, or in another version than it was made with.
    """
    artifact = read_artifact(directory)
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
    missing = {"target", "inputs", "outputs", "tensors", "regions", "files", "info"} - set(data)
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
