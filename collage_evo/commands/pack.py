"""``pack``: artifacts of one model for several processors in one package, with a float32 fall-back for all others."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

from collage_evo.answer.delivery import MODEL
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import DEFAULT
from collage_evo.codec import to_json
from collage_evo.errors import InputError
from collage_evo.hardware.processor import Processor
from collage_evo.hardware.target import CPU
from collage_evo.report.finished import RESULT, read_finished
from collage_evo.report.places import home_of
from collage_evo.run.profiles import FOLDER
from collage_evo.runtime.artifact import Artifact, Store, whole_or_nothing, write_artifact
from collage_evo.runtime.checked import check_file
from collage_evo.runtime.manifest import BEST, HELD, MANIFEST, plain_files, read_checked
from collage_evo.runtime.package import (
    PACKAGE,
    SCHEMA,
    Package,
    WrittenPackage,
    WrittenVariant,
    is_package,
    read_package,
    require_only_package,
    select_variant,
)
from collage_evo.runtime.program import Shapes

FLOAT32 = "float32"
"""Name of the fall-back in a package."""
_ANY = Processor("", "any processor", frozenset())


@dataclass(frozen=True)
class Packed:
    """A package, its bytes on disk, and those of its parts by themselves."""

    package: Package
    nbytes: int
    nbytes_of_parts: int


@dataclass(frozen=True)
class _Source:
    """An artifact to pack, the path that named it, and its run, where it lies in one that has ended."""

    place: Path
    directory: Path
    artifact: Artifact
    run: Path | None

    @property
    def name(self) -> str:
        """The processor that it is for, as a short name."""
        target = self.artifact.target
        kind = str(self.artifact.profiles[0].info.get(HELD) or target.machine.kind)
        return kind if target.device == CPU else f"{target.device}-{kind}"


def pack_artifacts(places: Sequence[Path], to: Path, overwrite: bool = False) -> Packed:
    """Write the package ``to`` of the artifacts, or the runs' answers, at ``places``. It appears whole or not at all.

    Files of equal content are one file on disk, under several names.

    Raises:
        InputError: an artifact is damaged, they are of several models, two are for the same processor, or ``to``
            exists and is not to be replaced.
    """
    if os.path.lexists(to) and not overwrite:
        raise InputError(f"{to} exists already: use --overwrite to replace it, or choose another --to")
    if os.path.lexists(to):
        require_only_package(to)
    sources = [_source(place) for place in places]
    for one, other in itertools.combinations(sources, 2):
        _require_fit(one, other)
    to.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f".{to.name}.", dir=to.parent) as name,
        whole_or_nothing(to, scratch := Path(name)) as work,
    ):
        store, variants = Store(work), dict[str, WrittenVariant]()
        fallback = _write_fallback(sources, scratch / FLOAT32)
        for one in sources:
            name = f"{one.name}-{len(variants) + 1}" if one.name in variants else one.name
            run = os.path.relpath(os.path.realpath(one.run), os.path.realpath(to)) if one.run else ""
            digest = _add(store, one.directory, name)
            variants[name] = WrittenVariant(digest, _speedup(one, fallback), run)
        if fallback:
            variants[FLOAT32] = WrittenVariant(_add(store, scratch / FLOAT32, FLOAT32))
        written = WrittenPackage(SCHEMA, variants, FLOAT32 if fallback else "")
        (work / PACKAGE).write_text(to_json(written, indent=1))
    package = read_package(to)
    return Packed(package, _nbytes(to), sum(_nbytes(one.directory) for one in sources))


def run_of(place: Path, name: str | None) -> Path:
    """The run directory whose answer is the variant ``name`` of the package at ``place``, or the one that this
    processor takes.

    Raises:
        InputError: there is no such variant, or the run is not here, or has another answer now.
    """
    package = read_package(place)
    variant = package.variant(name or package.select().name)
    run = Path(os.path.normpath(package.directory / variant.written.run))
    manifest = run / BEST / MANIFEST
    if not variant.written.run or not manifest.is_file() or check_file(manifest).digest != variant.written.manifest:
        raise InputError(f"the run that made {variant.name} of {place} is not here: export the run where it is")
    return run


def _source(place: Path) -> _Source:
    if is_package(place):
        raise InputError(f"{place} is a package: give its variants, as {place}/NAME")
    directory = select_variant(place).directory
    run = directory.parent if directory.name == BEST and (directory.parent / RESULT).is_file() else None
    return _Source(place, directory, read_checked(directory), run)


def _require_fit(one: _Source, other: _Source) -> None:
    """Require that both are of one model, and for different processors."""
    both = f"{one.place} and {other.place} are"
    first, second = one.artifact, other.artifact
    if (first.signature.inputs, first.signature.outputs) != (second.signature.inputs, second.signature.outputs):
        raise InputError(f"{both} of different models, with other inputs or outputs: pack those of one model")
    hashes, others = _hashes(one), _hashes(other)
    if hashes.keys() != others.keys():
        raise InputError(f"{both} for different shapes of their inputs: run both with the same --shapes")
    if hashes != others:
        raise InputError(f"{both} of different models, whose hashes differ: pack those of one model")
    processors = [(t.machine.architecture, t.machine.features, t.accelerator) for t in (first.target, second.target)]
    if processors[0] == processors[1]:
        cpu = first.target.machine.cpu
        raise InputError(f"{both} for the same processor, {one.name} ({cpu}): give one of the two")


def _hashes(source: _Source) -> dict[Shapes, str]:
    """The hash of the model for each profile of shapes."""
    hashes = {p.program.shapes: str(p.info.get(MODEL, {}).get("sha256", "")) for p in source.artifact.profiles}
    if not all(hashes.values()):
        raise InputError(f"{source.place} does not say what model it was made of: let its run end, and pack that")
    return hashes


def _add(store: Store, directory: Path, name: str) -> str:
    """Add the artifact in ``directory``, which was checked, as ``name``; returns the digest of its manifest."""
    for file in sorted(plain_files(directory)):
        store.put(directory / file, f"{name}/{file}")
    return store.files[f"{name}/{MANIFEST}"]


def _nbytes(directory: Path) -> int:
    """Bytes on disk: a file with several names counts once."""
    stats = [(directory / name).stat() for name in plain_files(directory)]
    return sum({stat.st_ino: stat.st_size for stat in stats}.values())


def _write_fallback(sources: Sequence[_Source], directory: Path) -> str:
    """Write the first run's answer of one library in float32 that any processor runs: a baseline for each profile,
    and the fallback for other shapes. Returns its backend; empty if no run has one."""
    for one in (one for one in sources if one.run is not None):
        home, count = home_of(one.run or one.directory), len(one.artifact.profiles)
        runs = [home] if count == 1 else [home / FOLDER / str(index) for index in range(count)]
        baselines, open_form = [_portable(run / "baselines") for run in runs], _portable(runs[0] / "fallbacks")
        profiles = [baseline.profiles[0] for baseline in baselines if baseline is not None]
        if len(profiles) == count:
            target = replace(one.artifact.target, machine=_ANY, device=CPU, accelerator="", cores=())
            other_shapes = open_form.program if open_form else None
            write_artifact(directory, profiles, target, one.artifact.signature, other_shapes)
            return profiles[0].program.pieces[0].backend
    return ""


def _portable(directory: Path) -> Artifact | None:
    """The first artifact in ``directory`` whose pieces run on every processor, in float32."""
    for place in sorted(directory.glob("*.collage")):
        pieces = (artifact := read_checked(place)).program.pieces
        if all(get_backend(piece.backend).portable and piece.variant == DEFAULT.name for piece in pieces):
            return artifact
    return None


def _speedup(source: _Source, backend: str) -> float | None:
    """The measured speed-up of an artifact over the fall-back's library; None if its run does not know it."""
    if source.run is None or not backend:
        return None
    libraries = [one for finished in read_finished(source.run) for one in finished.result.libraries]
    ratios = [one.speedup.estimate for one in libraries if one.backend == backend]
    return geometric_mean(ratios) if len(ratios) == len(source.artifact.profiles) else None
