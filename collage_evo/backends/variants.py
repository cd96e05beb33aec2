"""Variants of a backend: records of the ways in which it runs pieces, and whether one takes part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from collage_evo.hardware.accelerator import Accelerator, accelerator_of
from collage_evo.hardware.target import CPU
from collage_evo.precision.quantise.arithmetic import Arithmetic as Arithmetic  # part of a variant
from collage_evo.precision.quantise.form import Int8Form


@dataclass(frozen=True)
class Variant:
    """One way in which a backend builds and runs a piece.

    Attributes:
        name: unique in the backend, for reports, artifacts and databases. It has no ``~``, which in the names of its
            rewritten matches precedes the rewrite's.
        arithmetic: float32 unless it trades accuracy for speed: set by its base for whole pieces, or written into
            operators.
        device: ``cpu``, or the accelerator on which it runs.
        base: the variant that builds and runs the piece, itself unless something is written into the piece before.
            Pieces of one base may be joined into one. All variants of one base have the same int8 form, if any.
        int8_form: what the library needs around operators in int8; None if nothing is written so.
        everything: whether quantisers surround pooling, joins and moves too, not only heavy operators.
        built_as: the variant that compiles what this one loads, where both run the same files; empty for itself.
        last_resort: whether it runs only whole models, and only those for which no earlier variant is correct.
    """

    name: str = "default"
    arithmetic: Arithmetic = Arithmetic.FLOAT32
    device: str = CPU
    base: str = ""
    int8_form: Int8Form | None = None
    everything: bool = False
    built_as: str = ""
    last_resort: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base or self.name)

    @property
    def on_host(self) -> bool:
        """Whether it runs on the processor, in the host's memory."""
        return self.device == CPU

    @property
    def served_by(self) -> Accelerator:
        """The accelerator on which it runs. Raises as :func:`accelerator_of`, also for a variant of the host."""
        return accelerator_of(self.device)

    @property
    def writes(self) -> bool:
        """Whether it differs by edits of pieces: it runs no whole file."""
        return self.int8_form is not None or self.base != plain_name(self.name)

    @property
    def needs_ranges(self) -> bool:
        """Whether it takes part only where there are calibrated ranges."""
        return self.int8_form is not None and self.int8_form.calibrated

    @property
    def exact(self) -> bool:
        """Whether it computes in float32, so that its results differ only by rounding."""
        return self.arithmetic is Arithmetic.FLOAT32


DEFAULT = Variant()
AS_IT_COMES = "as-it-comes"
"""Name of the variant with a library's own settings."""
_REWRITTEN = "~"
"""Stands between the name of a variant and that of the rewrite which is written into its pieces."""


def rewritten_name(variant: str, rewrite: str) -> str:
    """The variant's name for matches of ``variant`` into which ``rewrite`` is written."""
    return f"{variant}{_REWRITTEN}{rewrite}"


def plain_name(variant: str) -> str:
    """The variant's own name in the name of rewritten or plain matches."""
    return variant.partition(_REWRITTEN)[0]


class TargetLike(Protocol):
    """A target, or what a configuration says of one."""

    @property
    def device(self) -> str: ...

    @property
    def threads(self) -> int: ...


def serves(variant: Variant, target: TargetLike | None) -> bool:
    """Whether it runs on ``target``: on its accelerator, or on its host; None is a host without accelerator."""
    return variant.on_host or (target is not None and variant.device == target.device)


def takes_part(variant: Variant, target: TargetLike | None, tolerance: float) -> bool:
    """Whether it serves ``target`` and its arithmetic fits a relative error of ``tolerance``."""
    return serves(variant, target) and (variant.exact or variant.arithmetic.roundoff <= tolerance)


def engine_name(backend: str, variant: str) -> str:
    """A backend and one of its variants as text."""
    return backend if variant == DEFAULT.name else f"{backend}/{variant}"
