"""The artifact on disk: writes a program as a ``.collage`` directory, reads it back after checking every file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError, UnavailableError
from collage_evo.graph.ir import OPAQUE, Tensor
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import Signature, signature_of_program
from collage_evo.target.processor import this_machine
from collage_evo.target.target import Target

SCHEMA = 3
READ = (2, SCHEMA)
"""Schema 2 knew one program, and nothing of the person's own file."""
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
class Profile:
    """A program for one set of input shapes, and information about its making."""

    program: Program
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """What a manifest says: the programs, what the person's file declares, and the target they are for."""

    profiles: tuple[Profile, ...]
    target: Target
    signature: Signature
    fallback: Program | None = None

    @property
    def program(self) -> Program:
        """The first profile's."""
        return self.profiles[0].program

    @property
    def programs(self) -> tuple[Program, ...]:
        """Every profile's, and the fall-back."""
        every = tuple(profile.program for profile in self.profiles)
        return (*every, self.fallback) if self.fallback else every


def write_artifact(
    directory: Path,
    profiles: Sequence[Profile],
    target: Target,
    signature: Signature | None = None,
    fallback: Program | None = None,
) -> None:
    """Copy the programs' pieces into ``directory`` and describe them in its manifest.

    Files of equal content are one file on disk, under several names. The directory appears whole or not at all; one
    that exists is replaced.

    Args:
        directory: where it goes.
        profiles: one for each set of input shapes.
        target: what they were compiled for.
        signature: what the person's own file declares; by default what the first program tells.
        fallback: a program that takes any other shapes.
    """
    work = directory.with_name(directory.name + ".tmp")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    store = _Store(work)
    signature = signature or signature_of_program(profiles[0].program)
    described = target.to_json()
    manifest = {
        "schema": SCHEMA,
        "target": {key: described[key] for key in ("device", "accelerator", "threads", "cores")},
        "machine": described["machine"],
        "model": signature.to_json(),
        "profiles": [
            {**store.add(profile.program, f"profiles/{index}"), "info": dict(profile.info)}
            for index, profile in enumerate(profiles)
        ],
        "fallback": store.add(fallback, "fallback") if fallback else None,
        "files": dict(sorted(store.files.items())),
    }
    (work / MANIFEST).write_text(json.dumps(manifest, indent=1))
    if directory.exists():
        shutil.rmtree(directory)
    os.replace(work, directory)


class _Store:
    """The files of an artifact that is being written."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._first: dict[str, Path] = {}
        """Where each content was put first."""
        self.files: dict[str, str] = {}
        """Digest of each file."""

    def add(self, program: Program, place: str) -> dict[str, Any]:
        """Take a program's files in; gives its part of the manifest."""
        regions = []
        for index, piece in enumerate(program.pieces):
            target = f"{place}/{index:03d}_{piece.backend}"
            for source in sorted(p for p in piece.directory.rglob("*") if p.is_file()):
                self._put(source, f"{target}/{source.relative_to(piece.directory).as_posix()}")
            (self._root / target).mkdir(parents=True, exist_ok=True)
            regions.append(
                {
                    "directory": target,
                    "backend": piece.backend,
                    "variant": piece.variant,
                    "backend_version": piece.backend_version,
                    "inputs": piece.inputs,
                    "outputs": piece.outputs,
                    "nodes": piece.nodes,
                }
            )
        return {
            "inputs": program.inputs,
            "outputs": program.outputs,
            "tensors": {t.name: {"dtype": t.dtype, "shape": t.shape} for t in program.tensors.values()},
            "regions": regions,
        }

    def _put(self, source: Path, name: str) -> None:
        path, digest = self._root / name, _digest(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files[name] = digest
        if digest in self._first:
            with contextlib.suppress(OSError):  # a file system without links holds the file twice
                os.link(self._first[digest], path)
                return
        shutil.copyfile(source, path)
        self._first.setdefault(digest, path)


def read_artifact(directory: Path) -> Artifact:
    """Read and check a manifest and every file it lists.

    Raises:
        InputError: not an artifact, of a schema that is not read, or a file is missing, changed or outside it.
    """
    data = _manifest(directory)
    try:
        _check_files(directory, data["files"])
        profiles = tuple(Profile(_program(directory, part), dict(part["info"])) for part in data["profiles"])
        fallback = _program(directory, data["fallback"]) if data["fallback"] else None
        programs = [profile.program for profile in profiles] + ([fallback] if fallback else [])
        if len({(program.inputs, program.outputs) for program in programs}) != 1:
            raise ValueError("its programs are not of one model")
        target = Target.from_json({**data["target"], "machine": data["machine"], "records": ""})
        known = data["model"]
        signature = Signature.from_json(known) if known else signature_of_program(profiles[0].program)
        return Artifact(profiles, target, signature, fallback)
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
    for piece in (piece for program in artifact.programs for piece in program.pieces):
        probe = get_backend(piece.backend).probe()
        if not probe.available:
            raise UnavailableError(f"{directory} needs the backend '{piece.backend}': {probe.reason}")
        if probe.version != piece.backend_version:
            raise UnavailableError(
                f"{directory} was made with {piece.backend} {piece.backend_version}, here is {probe.version}: "
                "install that version, or run the search again"
            )
    programs = [profile.program for profile in artifact.profiles]
    return Session(programs, artifact.target, artifact.signature, artifact.fallback)


def _require_machine(directory: Path, artifact: Artifact) -> None:
    here, needed = this_machine(), artifact.target.machine
    if here.architecture != needed.architecture:
        raise UnavailableError(
            f"{directory} was made for {needed.architecture}, this machine is {here.architecture}: "
            "run the search on this machine"
        )
    if missing := here.lacks(needed.features):
        raise UnavailableError(
            f"{directory} was made on a CPU with {', '.join(missing)}, which this one lacks: "
            "run the search on this machine"
        )


def _program(directory: Path, data: Mapping[str, Any]) -> Program:
    tensors = {name: _tensor(name, value["dtype"], value["shape"]) for name, value in data["tensors"].items()}
    pieces = tuple(_piece(directory, region, tensors) for region in data["regions"])
    return Program(pieces, _names(data["inputs"], tensors), _names(data["outputs"], tensors), tensors)


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
    if dtype == "bfloat16":
        _require_bfloat16()
    if not all(isinstance(size, int) and size >= -1 for size in shape):
        raise ValueError(f"tensor {name} has shape {shape}")
    return Tensor(name, dtype, tuple(shape))


def _require_bfloat16() -> None:
    """NumPy knows the type by its name once that package is imported."""
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        raise UnavailableError("the artifact holds bfloat16 tensors: pip install ml_dtypes") from None


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
    if schema not in READ:
        raise InputError(
            f"{directory} has schema {schema}, this version reads {' and '.join(map(str, READ))}: "
            "use the version that made it, or run the search again"
        )
    if schema < SCHEMA:
        program = {key: data[key] for key in ("inputs", "outputs", "tensors", "regions", "info") if key in data}
        data = {**data, "profiles": [program], "model": None, "fallback": None}
    missing = {"target", "machine", "model", "profiles", "fallback", "files"} - set(data)
    if missing:
        raise InputError(f"{directory / MANIFEST} lacks '{sorted(missing)[0]}': run the search again")
    return dict(data)


def _check_files(directory: Path, files: Mapping[str, str]) -> None:
    digests: dict[tuple[int, int], str] = {}
    for name, digest in files.items():
        path = _inside(directory, name)
        if not path.is_file():
            raise InputError(f"{directory} lacks {name}: copy the artifact again, or run the search again")
        one = path.stat()
        if (one.st_dev, one.st_ino) not in digests:  # a file under several names is read once
            digests[one.st_dev, one.st_ino] = _digest(path)
        if digests[one.st_dev, one.st_ino] != digest:
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
