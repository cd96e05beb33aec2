"""Packages: artifacts of one model for several processors in a directory, and which of them this processor takes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from collage_evo.codec import from_plain
from collage_evo.errors import CollageError, InputError, UnavailableError, printable
from collage_evo.files import reading
from collage_evo.hardware.processor import this_machine
from collage_evo.hardware.target import Target
from collage_evo.runtime.checked import check_file
from collage_evo.runtime.fit import require_fit_for
from collage_evo.runtime.manifest import (
    BEST,
    MANIFEST,
    Manifest,
    Text,
    json_of,
    measured_elsewhere,
    plain_files,
    read_manifest,
)

MODEL = "model"
"""Information key of an artifact for the file name of the user's model, and its hash (shapes fixed)."""
PACKAGE = "package.json"
SCHEMA = 1
_MEND = "copy the package again, or pack it again"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WrittenVariant:
    """A variant in ``package.json``: the SHA-256 of its manifest, its measured speed-up over the fall-back's library
    (None: not known), and the path of the run that made it from the package's own directory (empty: none)."""

    manifest: Text
    speedup: float | None = None
    run: Text = ""


@dataclass(frozen=True)
class WrittenPackage:
    """The content of ``package.json``; ``fallback`` names one of the variants, or none."""

    schema: int
    variants: Mapping[Text, WrittenVariant]
    fallback: Text = ""


@dataclass(frozen=True)
class PackedVariant:
    """One artifact of a package.

    Attributes:
        name: of its directory.
        directory: the artifact's.
        target: that it was compiled for.
        written: its part of ``package.json``.
        elsewhere: where its times were measured, if not on such a processor.
        unfit: why this machine does not run it; empty if it does.
        other: how this processor differs from the one that it was made for; empty if it does not.
    """

    name: str
    directory: Path
    target: Target
    written: WrittenVariant
    elsewhere: str
    unfit: str
    other: str

    @property
    def difference(self) -> str:
        """What is against it on this machine, in a few words; empty if nothing is."""
        return self.unfit or (f"this processor {self.other}" if self.other else "")


@dataclass(frozen=True)
class Package:
    """The artifacts for certain processors, and one in float32 for all others (None: there is none)."""

    directory: Path
    variants: tuple[PackedVariant, ...]
    fallback: PackedVariant | None

    def variant(self, name: str) -> PackedVariant:
        """The variant, or the fall-back, of that name.

        Raises:
            InputError: there is none.
        """
        every = {one.name: one for one in (*self.variants, *([self.fallback] if self.fallback else []))}
        if name not in every:
            raise InputError(f"{self.directory} has no variant {name}: take one of {', '.join(every)}")
        return every[name]

    def select(self) -> Selected:
        """The variant for this processor; see :func:`select_variant`."""
        able = [one for one in self.variants if not one.unfit]
        why = "; ".join(f"{one.name}: {one.difference}" for one in self.variants)
        none_like = f"no variant was made for a processor like this one ({why})"
        if like := [one for one in able if not one.other]:
            best = max(like, key=_specific)
            more = f"; {best.elsewhere}" if best.elsewhere else ""
            return Selected(best.directory, best.name, f"it was made for a processor like this one{more}")
        if self.fallback is not None:
            reason = f"it runs in float32 in one library, on any processor; {none_like}"
            return Selected(self.fallback.directory, self.fallback.name, reason, is_fallback=True)
        if not able:
            raise UnavailableError(f"{self.directory} has no float32 fall-back, and {none_like}: pack one with it")
        best = max(able, key=_specific)
        return Selected(best.directory, best.name, f"it uses the most instructions of this processor; {none_like}")


@dataclass(frozen=True)
class Selected:
    """An artifact, and for one of a package its name there, and why it is the one that this processor takes."""

    directory: Path
    name: str = ""
    reason: str = ""
    is_fallback: bool = False


def select_variant(place: Path) -> Selected:
    """The artifact at ``place``: that itself, a run's answer, or one of a package.

    Of a package it is the variant with the most instructions that was made for a processor like this one, the one of
    the greatest measured speed-up among equals. If there is none, it is the fall-back in float32; without a
    fall-back, the variant that runs here with the most instructions.

    Raises:
        InputError: the package is damaged.
        UnavailableError: nothing in the package runs here.
    """
    answer = place / BEST
    is_run = answer.is_dir() and not (place / MANIFEST).exists() and not is_package(place)
    directory = answer if is_run else place
    if not is_package(directory):
        return Selected(directory)
    selected = read_package(directory).select()
    _log.info("%s", printable(f"{directory}: selected {selected.name}: {selected.reason}"))
    return selected


def is_package(directory: Path) -> bool:
    return (directory / PACKAGE).exists()


def require_only_package(directory: Path) -> None:
    """Require that ``directory`` is a package and contains nothing else, so that removing it loses nothing else.

    Raises:
        InputError: it is none, or an unknown file lies in it.
    """
    choose = "so it is not overwritten: choose another --to"
    try:
        package = read_package(directory)
        for one in (*package.variants, *filter(None, [package.fallback])):
            manifest, files = read_manifest(one.directory)
            if extra := files - manifest.files.keys() - {MANIFEST}:
                raise InputError(f"it holds {one.name}/{min(extra)}")
    except CollageError as error:
        raise InputError(f"{directory} is not a package, or not only that ({error}), {choose}") from error


def read_package(directory: Path) -> Package:
    """Read a package and the manifests of its variants; the files of a variant are checked when it is read.

    Raises:
        InputError: it is of an unknown schema; or a manifest is missing, changed, a link or outside of it.
    """
    directory = Path(os.path.realpath(directory))
    with reading(directory / PACKAGE, _MEND):
        data = json_of(directory / PACKAGE)
        if (schema := data["schema"]) != SCHEMA:
            raise InputError(f"{directory} has schema {schema}, this version reads {SCHEMA}: pack it again")
        written = from_plain(data, WrittenPackage)
        files = frozenset(plain_files(directory))
        if extra := [name for name in files - {PACKAGE} if PurePosixPath(name).parts[0] not in written.variants]:
            raise InputError(f"{directory} holds {min(extra)}, which its {PACKAGE} does not list: do not use it")
        manifests = {name: _manifest(directory, name, one, files) for name, one in written.variants.items()}
        _require_one_model(directory, manifests, written.fallback)
        every = {name: _variant(directory, name, one, manifests[name]) for name, one in written.variants.items()}
        fallback = every.pop(written.fallback) if written.fallback else None
    return Package(directory, tuple(every.values()), fallback)


def _require_one_model(directory: Path, manifests: Mapping[str, Manifest], fallback: str) -> None:
    """Require that all variants have the same inputs and outputs, and all but the fall-back are of the same file."""
    signatures = {name: one.model and (one.model.inputs, one.model.outputs) for name, one in manifests.items()}
    hashes = {
        name: [one.info.get(MODEL, {}).get("sha256") for one in manifest.profiles]
        for name, manifest in manifests.items()
        if name != fallback
    }
    for known in (signatures, hashes):
        for name, what in known.items():
            if what != (first := next(iter(known.items())))[1]:
                raise InputError(f"{directory} holds {first[0]} and {name}, of different models: do not use it")


def _manifest(directory: Path, name: str, written: WrittenVariant, files: frozenset[str]) -> Manifest:
    if PurePosixPath(name).parts != (name,) or name == "..":
        raise InputError(f"{PACKAGE} of {directory} names '{name}', outside the package: do not use it")
    if f"{name}/{MANIFEST}" not in files:
        raise InputError(f"{directory} lacks the variant {name}: {_MEND}")
    if check_file(directory / name / MANIFEST).digest != written.manifest:
        raise InputError(f"{name}/{MANIFEST} in {directory} was changed: {_MEND}")
    return read_manifest(directory / name)[0]


def _variant(directory: Path, name: str, written: WrittenVariant, manifest: Manifest) -> PackedVariant:
    target = manifest.whole_target
    elsewhere = measured_elsewhere(target.machine.cpu, manifest.profiles[0].info)
    other = this_machine().differences(target.machine)
    return PackedVariant(name, directory / name, target, written, elsewhere, _unfit(name, target), other)


def _unfit(name: str, target: Target) -> str:
    try:
        require_fit_for(Path(name), target)
    except UnavailableError as error:
        return str(error).removeprefix(f"{name} ").rpartition(": ")[0]
    return ""


def _specific(variant: PackedVariant) -> tuple[int, float]:
    return len(variant.target.machine.features), variant.written.speedup or 0.0
