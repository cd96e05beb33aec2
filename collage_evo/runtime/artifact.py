"""Artifacts on disk: writes programs as a ``.collage`` directory, and opens one for inference."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.backends.variants import engine_name
from collage_evo.codec import to_json
from collage_evo.errors import InputError, OtherProcessor, UnavailableError
from collage_evo.files import files_in, link_or_copy
from collage_evo.graph.ir.memory import plan_memory
from collage_evo.hardware.memory import usable_memory
from collage_evo.hardware.processor import this_machine
from collage_evo.hardware.slots import describe_quota, usable_cores
from collage_evo.hardware.target import Target
from collage_evo.modules import shell_command
from collage_evo.runtime.checked import check_file
from collage_evo.runtime.fit import require_fit_for
from collage_evo.runtime.manifest import (
    BORDER,
    LEAST,
    MANIFEST,
    SCHEMA,
    Artifact,
    Manifest,
    Profile,
    Where,
    WrittenPiece,
    WrittenProgram,
    WrittenTensor,
    backend_of,
    border_of,
    read_checked,
)
from collage_evo.runtime.package import Selected, select_variant
from collage_evo.runtime.program import Program, lifetimes
from collage_evo.runtime.runner import Loader, needs_proof
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import Signature, signature_of_program

LINKED_BYTES = 2**20
"""Bytes of a file that an artifact shares with the one that it is written from, where the file system has links."""
_CHECK = f"{shell_command()} compare tells what is true here"
__all__ = ["MANIFEST", "Artifact", "Profile", "load_artifact", "read_artifact", "write_artifact"]


def write_artifact(
    directory: Path,
    profiles: Sequence[Profile],
    target: Target,
    signature: Signature | None = None,
    fallback: Program | None = None,
    check: Callable[[Path], object] = lambda written: None,
) -> None:
    """Copy the programs' pieces into ``directory`` and describe them in its manifest.

    Files of equal content are one file on disk, under several names; a large file is one with the piece's own. The
    directory appears whole or not at all, and replaces an existing one.

    Args:
        directory: the artifact's.
        profiles: one for each set of input shapes.
        target: that the programs were compiled for.
        signature: of the user's own file; by default that of the first program.
        fallback: a program that takes any other shapes.
        check: is called with the path of the new directory before that takes its place, which an exception prevents.
    """
    with whole_or_nothing(directory) as work:
        store = Store(work)
        programs = [
            replace(store.add(profile.program, f"profiles/{index}"), info=profile.info)
            for index, profile in enumerate(profiles)
        ]
        last = store.add(fallback, "fallback") if fallback else None
        manifest = Manifest(
            SCHEMA,
            Where(target.device, target.threads, target.cores, target.accelerator),
            target.machine,
            signature or signature_of_program(profiles[0].program),
            tuple(programs),
            last,
            dict(sorted(store.files.items())),
            {name: (work / name).stat().st_size for name in sorted(store.files)},
        )
        (work / MANIFEST).write_text(to_json(manifest, indent=1))
        check(work)


@contextlib.contextmanager
def whole_or_nothing(directory: Path, scratch: Path | None = None) -> Iterator[Path]:
    """An empty directory that replaces ``directory`` at the end of the context.

    ``scratch``: an empty directory on the same disk, where the new one and the old one lie meanwhile; by default they
    have names beside ``directory`` that a run reserves.
    """
    place = scratch / directory.name if scratch else directory
    work, before = (place.with_name(f".{place.name}.{name}") for name in ("new", "before"))
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    yield work
    shutil.rmtree(before, ignore_errors=True)
    if directory.exists():  # a kill leaves the one or the other whole, however long deleting takes
        os.replace(directory, before)
    os.replace(work, directory)
    shutil.rmtree(before, ignore_errors=True)


class Store:
    """The files of an artifact or a package under construction."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._first: dict[str, Path] = {}
        """The first file of each content."""
        self.files: dict[str, str] = {}
        """Digest of each file."""

    def add(self, program: Program, place: str) -> WrittenProgram:
        """Add a program's files; returns its part of the manifest."""
        regions = []
        for index, piece in enumerate(program.pieces):
            target = f"{place}/{index:03d}_{piece.backend}"
            for name, source in files_in(piece.directory).items():
                if name != BORDER:  # of the artifact from which the piece comes
                    self.put(source, f"{target}/{name}")
            self._write(f"{target}/{BORDER}", to_json(border_of(program.tensors, piece.inputs, piece.outputs)))
            regions.append(
                WrittenPiece(
                    target,
                    piece.backend,
                    piece.variant,
                    piece.backend_version,
                    piece.inputs,
                    piece.outputs,
                    piece.nodes,
                )
            )
        tensors = {t.name: WrittenTensor(t.dtype, t.shape) for t in program.tensors.values()}
        return WrittenProgram(program.inputs, program.outputs, tensors, tuple(regions), program.limits)

    def put(self, source: Path, name: str) -> None:
        """Add a file under ``name``: a link to it if it is large, or to one of the same content, or a copy."""
        digest = check_file(source).digest
        if not self._linked(name, digest):
            status = source.stat()
            # A file of another user may change after that user's wishes, so the artifact has a copy.
            share = status.st_size >= LINKED_BYTES and status.st_uid == os.geteuid()
            (link_or_copy if share else shutil.copyfile)(source, self._root / name)

    def _write(self, name: str, text: str) -> None:
        if not self._linked(name, hashlib.sha256(text.encode()).hexdigest()):
            (self._root / name).write_text(text)

    def _linked(self, name: str, digest: str) -> bool:
        """Whether ``name`` is now a link to an earlier file of this content."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files[name] = digest
        first = self._first.setdefault(digest, path)
        if first == path:
            return False
        try:
            os.link(first, path)
        except OSError:  # a file system without links holds the file twice
            return False
        return True


def read_artifact(directory: Path) -> Artifact:
    """Read and check an artifact: that in ``directory``, a run's answer, or the one that this processor takes of a
    package. Raises as :func:`read_checked` and :func:`select_variant`."""
    return read_checked(select_variant(directory).directory)



def load_artifact(
    directory: Path, strict: bool = False, proven: bool = False, load: Loader | None = None
) -> Session:
    """Open an artifact for inference; of a package, the one that :func:`select_variant` takes.

    Warns, with :class:`OtherProcessor`, where this processor has instructions that the artifact's did not have,
    where its times were measured on a processor that was held to fewer instructions, and where a package has nothing
    but its float32 fall-back: libraries may round otherwise and be faster or slower than measured. Also where the CPU
    quota allows fewer processors than the artifact has threads.

    Args:
        directory: of the artifact.
        strict: raise instead of warning.
        proven: the model takes all shapes that will be fed, so that the fallback need not run them first.
        load: loads the pieces, except those of the fallback; by default their backends do.

    Raises:
        InputError: see :func:`read_checked`; or it has no fallback that would refuse shapes.
        UnavailableError: this machine lacks instructions of the artifact's, or its accelerator; or one of its
            backends is not installed, or in another version, or refuses what it compiled for fewer instructions; or
            with ``strict``, it would warn.
    """
    selected = select_variant(directory)
    directory, artifact = selected.directory, read_checked(selected.directory)
    require_fit_for(directory, artifact.target)
    _require_memory(directory, artifact)
    messages = []
    if text := _doubt(selected, artifact):
        messages.append(f"{directory} may round otherwise and be faster or slower than measured: {text}; {_CHECK}")
    if (quota := describe_quota()) and artifact.target.threads > len(usable_cores()):
        messages.append(f"{directory} has {artifact.target.threads} threads and may be slower than measured. {quota}")
    for message in messages:
        if strict:
            raise UnavailableError(message)
        warnings.warn(message, OtherProcessor, stacklevel=3)
    for piece in (piece for program in artifact.programs for piece in program.pieces):
        backend = backend_of(directory, piece)
        if not (probe := backend.probe()).available:
            raise UnavailableError(f"{directory} needs the backend '{piece.backend}': {probe.reason}")
        try:
            variant = backend.variant(piece.variant)
        except InputError as error:
            raise InputError(f"{directory / MANIFEST} is damaged ({error}): copy the artifact again") from None
        if (not variant.on_host or isinstance(backend, StandsOnOthers)) and (reason := backend.declines(variant)):
            raise UnavailableError(f"{directory} needs {engine_name(piece.backend, piece.variant)}: {reason}")
        if (version := backend.version_of(variant)) != piece.backend_version:
            raise UnavailableError(
                f"{directory} was made with {piece.backend} {piece.backend_version}, here is {version}: "
                "install that version, or run the search again"
            )
    programs = [profile.program for profile in artifact.profiles]
    guarded = any(map(needs_proof, programs))
    if guarded and not artifact.fallback and not proven:
        raise InputError(f"{directory} has no fallback to refuse shapes with: load best.collage of its run")
    fallback = None if guarded and proven else artifact.fallback
    session = Session(
        programs, artifact.target, artifact.signature, fallback, load, least=artifact.profiles[0].info.get(LEAST, {})
    )
    session.selected = selected if selected.name else None
    return session


def _doubt(selected: Selected, artifact: Artifact) -> str:
    """Why the figures of an artifact may not hold here; empty if they do."""
    here, made_on = this_machine(), artifact.target.machine
    if selected.is_fallback:
        return selected.reason
    return here.other_than(made_on) or ("" if here.cpu == made_on.cpu else artifact.measured_elsewhere)


def _require_memory(directory: Path, artifact: Artifact) -> None:
    # Every profile has its own arena, and the fallback may be loaded too.
    size = sum(plan_memory(lifetimes(program)).size for program in artifact.programs)
    if size > (memory := usable_memory()):
        raise UnavailableError(
            f"the tensors of {directory} take {size / 2**30:.3g} GiB, this machine or its container has "
            f"{memory / 2**30:.3g}: run the search on this machine"
        )
