"""Reader of an artifact's manifest, which is untrusted: a closed program from a directory.

The reader opens only plain files of the artifact, loads no library, and allocates no memory by a number in the
manifest. Every fault becomes a one-line error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend
from collage_evo.codec import As, from_plain
from collage_evo.errors import CollageError, InputError, UnavailableError, shortened
from collage_evo.files import reading
from collage_evo.graph.ir.elements import EXTENDED, NUMPY
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.hardware.processor import Processor
from collage_evo.hardware.target import Target
from collage_evo.multimap import multimap
from collage_evo.runtime.checked import CheckedFile, check_file
from collage_evo.runtime.program import Piece, Program, require_closed
from collage_evo.runtime.signature import Signature, signature_of_program

SCHEMA = 4
MANIFEST = "manifest.json"
BEST = "best.collage"
"""The artifact in a run directory."""
EXACT = "exact"
"""Key of an artifact's information for whether it computes in float32 throughout."""
HELD = "held"
"""Information key of an artifact for the level to which the processor that measured it was held."""
LEAST = "least"
"""Information key of an artifact for many shapes: the least shapes that its pieces were checked on, by input."""
BORDER = "border.json"
"""In a piece's directory: names and types of the tensors that it was built for."""
_MEND = "copy the artifact again, or run the search again"
_JSON_BYTES = 2**25
"""More than the largest manifest: names of half a million nodes. Parsed, it may take thirty times as much."""
_MOST = 2**13
"""Most regions, and most tensors, of all programs together: far more than any search makes. Memory for so many is
planned in half a minute, for twice as many in two."""
_TEXT = 600
"""Most characters of a text in a message."""
_MAX_AXES = 32
"""As many as every NumPy takes."""


@dataclass(frozen=True)
class Profile:
    """A program for one set of input shapes, and information about its making."""

    program: Program
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """The content of a manifest: the programs, the signature of the user's file, the target and machine."""

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
        """Every profile's, and the fallback."""
        every = tuple(profile.program for profile in self.profiles)
        return (*every, self.fallback) if self.fallback else every

    @property
    def measured_elsewhere(self) -> str:
        """Where its times were measured, if that was a processor held to a lesser one; empty otherwise."""
        return measured_elsewhere(self.target.machine.cpu, self.profiles[0].info)


def _text(text: str) -> str:
    """A short text of this package, safe for messages."""
    if not text.isprintable() or len(text) > _TEXT:
        raise ValueError(f"{text[:80]!r} is no text")
    return text


Text = Annotated[str, As(_text, _text)]
Border = dict[str, list[tuple[str, str, tuple[int, ...]]]]
"""Content of ``border.json``: name, type and shape of a piece's inputs and of its outputs."""


@dataclass(frozen=True)
class Where:
    """A target without its machine, in a manifest."""

    device: Text
    threads: int
    cores: tuple[int, ...]
    accelerator: Text = ""


@dataclass(frozen=True)
class WrittenTensor:
    """A tensor's type, in a manifest."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WrittenPiece:
    """A piece in a manifest: names of its directory, its backend and variant, its tensors and nodes."""

    directory: Text
    backend: Text
    variant: Text
    backend_version: Text
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class WrittenProgram:
    """A program in a manifest."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, WrittenTensor]
    regions: tuple[WrittenPiece, ...]
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``; ``sizes`` are in bytes."""

    schema: int
    target: Where
    machine: Processor
    model: Signature | None
    profiles: tuple[WrittenProgram, ...]
    fallback: WrittenProgram | None
    files: Mapping[str, str]
    sizes: Mapping[str, int]

    @property
    def programs(self) -> tuple[WrittenProgram, ...]:
        """Every profile's, and the fallback."""
        return (*self.profiles, *([self.fallback] if self.fallback else []))

    @property
    def whole_target(self) -> Target:
        """The target with its machine."""
        where = self.target
        return Target(where.device, where.threads, where.cores, self.machine, where.accelerator)

    def __post_init__(self) -> None:
        if self.target.threads < 1 or min(self.target.cores, default=0) < 0:
            raise ValueError(f"threads are {self.target.threads}, cores {self.target.cores}")
        for text in (self.machine.cpu, self.machine.architecture, *self.machine.features):
            _text(text)
        for parts in ("regions", "tensors"):
            if (count := sum(len(getattr(program, parts)) for program in self.programs)) > _MOST:
                raise ValueError(f"{count} {parts}, of which no more than {_MOST} are read")


def measured_elsewhere(cpu: str, info: Mapping[str, Any]) -> str:
    """Why times of an artifact with this ``info`` are not those of its target; empty if they are."""
    level = info.get(HELD)
    return f"its times were not measured on such a processor, but on {cpu}" if level else ""


def read_checked(directory: Path) -> Artifact:
    """Read and check the manifest of the artifact in ``directory``, and every file it lists.

    Raises:
        InputError: it is no artifact, or of an unknown schema; a file is missing, changed, a link or outside of it;
            or the manifest contradicts itself or the borders that the pieces were built for.
        UnavailableError: it holds a type of tensors whose package is not installed.
    """
    directory = Path(os.path.realpath(directory))  # so that later loads use the same directory
    try:
        with reading(directory / MANIFEST, _MEND):
            return _read(directory)
    except CollageError as error:
        raise type(error)(shortened(error)) from error


def read_infos(directory: Path) -> tuple[Mapping[str, Any], ...]:
    """An artifact's information on the making of each profile; its other files are not read.

    Raises:
        InputError: it is no artifact, or of an unknown schema.
    """
    with reading(directory / MANIFEST, _MEND):
        return tuple(profile.info for profile in read_manifest(directory)[0].profiles)


def computes_exactly(artifact: Path) -> bool:
    """Whether an artifact's information declares float32 throughout; False without a declaration."""
    return all(info.get(EXACT, True) for info in read_infos(artifact))


def border_of(tensors: Mapping[str, Tensor], inputs: Sequence[str], outputs: Sequence[str]) -> Border:
    """The inputs and outputs of a piece, in order."""
    sides = {"inputs": inputs, "outputs": outputs}
    return {side: [(one, tensors[one].dtype, tensors[one].shape) for one in names] for side, names in sides.items()}


def backend_of(directory: Path, piece: Piece) -> Backend:
    """The backend that runs a piece of the artifact in ``directory``.

    Raises:
        UnavailableError: there is none of that name.
    """
    try:
        return get_backend(piece.backend)
    except CollageError as error:
        raise UnavailableError(f"{directory} needs the backend '{piece.backend}': {error}") from error


def _read(directory: Path) -> Artifact:
    written, files = read_manifest(directory)
    checked = _check_files(directory, written.files, written.sizes, files)
    reader = _Reader(directory, checked)
    profiles = tuple(Profile(reader.program(part), part.info) for part in written.profiles)
    artifact = Artifact(
        profiles,
        written.whole_target,
        written.model or signature_of_program(profiles[0].program),
        reader.program(written.fallback) if written.fallback else None,
    )
    if len({(program.inputs, program.outputs) for program in artifact.programs}) != 1:
        raise ValueError("its programs are not of one model")
    inputs, outputs = ([arg.name for arg in side] for side in (artifact.signature.inputs, artifact.signature.outputs))
    if set(inputs) != set(artifact.program.inputs) or outputs != list(artifact.program.outputs):
        raise ValueError("its model has other inputs or outputs than its programs")
    places = [piece.directory for program in artifact.programs for piece in program.pieces]
    if len(set(places)) != len(places):
        raise ValueError("two regions have one directory")
    return artifact


class _Reader:
    """Makes programs from their parts of the manifest."""

    def __init__(self, directory: Path, checked: Mapping[str, CheckedFile]) -> None:
        self._directory, self._known = directory, checked.keys()
        self._folders = multimap(
            (str(parent), file) for name, file in checked.items() for parent in PurePosixPath(name).parents
        )

    def program(self, written: WrittenProgram) -> Program:
        tensors = {name: _tensor(name, one) for name, one in written.tensors.items()}
        pieces = tuple(self._piece(region, tensors) for region in written.regions)
        for names in (written.inputs, written.outputs):
            _require_known(names, tensors)
        program = Program(pieces, written.inputs, written.outputs, tensors, written.limits)
        require_closed(program)
        return program

    def _piece(self, written: WrittenPiece, tensors: Mapping[str, Tensor]) -> Piece:
        _require_inside(self._directory, written.directory)
        folder = str(PurePosixPath(written.directory))
        if folder not in self._folders or folder == ".":
            raise ValueError(f"there is no directory {written.directory!r}")
        _require_known((*written.inputs, *written.outputs), tensors)
        piece = Piece(
            self._directory / folder,
            written.backend,
            written.variant,
            written.inputs,
            written.outputs,
            written.nodes,
            written.backend_version,
            tuple(self._folders[folder]),
        )
        self._check_border(piece, folder, tensors)
        return piece

    def _check_border(self, piece: Piece, folder: str, tensors: Mapping[str, Tensor]) -> None:
        if f"{folder}/{BORDER}" not in self._known:
            raise ValueError(f"region {folder!r} does not say what it takes")
        with reading(piece.directory / BORDER, _MEND):
            border = from_plain(json_of(piece.directory / BORDER), Border)
        if border != border_of(tensors, piece.inputs, piece.outputs):
            raise ValueError(f"region {folder!r} was built for other tensors")


def _tensor(name: str, written: WrittenTensor) -> Tensor:
    if written.dtype not in NUMPY and written.dtype not in EXTENDED and written.dtype != OPAQUE:
        raise ValueError(f"tensor {name} is {written.dtype}")
    if written.dtype in EXTENDED:
        _require_ml_dtypes(written.dtype)
    if len(written.shape) > _MAX_AXES or min(written.shape, default=0) < -1:
        raise ValueError(f"tensor {name} has shape {written.shape}")
    return Tensor(name, written.dtype, written.shape)


def _require_ml_dtypes(dtype: str) -> None:
    """Import ``ml_dtypes`` for its types: NumPy knows them by name only afterwards."""
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        raise UnavailableError(f"the artifact holds {dtype} tensors: pip install ml_dtypes") from None


def _require_known(names: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
    if unknown := [name for name in names if name not in tensors]:
        raise ValueError(f"no tensor {unknown[0]}")


def is_sound(directory: Path) -> bool:
    """Whether the artifact in ``directory`` has its files, unchanged."""
    try:
        read_checked(directory)
    except CollageError:
        return False
    return True


def read_manifest(directory: Path) -> tuple[Manifest, frozenset[str]]:
    """The manifest of an artifact, and the names of all files in ``directory``. Raises as :func:`read_checked`, and
    anything that a library raises over a damaged file."""
    if not directory.is_dir():
        raise InputError(f"no artifact at {directory}: give the .collage directory that a run wrote")
    files = frozenset(plain_files(directory))
    if MANIFEST not in files:
        raise InputError(f"{directory} holds no {MANIFEST}: it is not an artifact, or not a whole one")
    path = directory / MANIFEST
    data = json_of(path)
    schema = data["schema"]
    if isinstance(schema, bool) or schema != SCHEMA:
        raise InputError(
            f"{directory} has schema {schema}, this version reads {SCHEMA}: "
            "use the version that made it, or run the search again"
        )
    return from_plain(data, Manifest), files


def json_of(path: Path) -> Any:
    """The plain values in a file of an artifact."""
    if path.stat().st_size > _JSON_BYTES:
        raise ValueError("it is too large")
    return json.loads(path.read_bytes())


def plain_files(directory: Path, inside: str = "") -> Iterator[str]:
    """Names of all files in the directory. Refuses links and devices, which may point anywhere."""
    with os.scandir(directory / inside) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from plain_files(directory, f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                yield name
            else:
                raise InputError(f"{name} in {directory} is a link, or no plain file: do not use it")


def _check_files(
    directory: Path, files: Mapping[str, str], sizes: Mapping[str, int], names: frozenset[str]
) -> dict[str, CheckedFile]:
    """Check every file of the artifact against its manifest. ``sizes``: in bytes."""
    seen: dict[tuple[int, int], CheckedFile] = {}
    checked = {}
    for name, digest in files.items():
        _require_inside(directory, name)
        if name not in names:
            raise InputError(f"{directory} lacks {name}: {_MEND}")
        path = directory / name
        status = path.lstat()
        if (status.st_dev, status.st_ino) not in seen:  # a file under several names is read once
            seen[status.st_dev, status.st_ino] = check_file(path, sizes[name])
        checked[name] = replace(seen[status.st_dev, status.st_ino], path=path, root=directory)
        if checked[name].digest != digest:
            raise InputError(f"{name} in {directory} was changed: {_MEND}")
    if extra := names - files.keys() - {MANIFEST}:
        raise InputError(f"{directory} holds {min(extra)}, which its manifest does not list: do not use it")
    return checked


def _require_inside(directory: Path, name: str) -> None:
    """Refuse a name that points outside: a manifest may come from anywhere."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise InputError(f"the manifest of {directory} names '{name}', outside the artifact: do not use it")
