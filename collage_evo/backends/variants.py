"""In which ways a backend runs pieces: its variants as records, and whether one takes part."""

from __future__ import annotations

from dataclasses import dataclass

from collage_evo.precision.quantise.arithmetic import Arithmetic as Arithmetic  # part of a variant
from collage_evo.precision.quantise.rules import Quantisers
from collage_evo.target.target import CPU


@dataclass(frozen=True)
class Variant:
    """One way in which a backend builds and runs a piece.

    Attributes:
        name: tells it apart from the backend's others, in reports, artifacts and databases. Without ``~``, behind
            which the names of its rewritten matches have the rewrite's.
        arithmetic: float32 unless it trades accuracy for speed: what its base sets for whole pieces, or what is
            written into operators.
        device: where it runs: ``cpu`` or ``cuda``.
        base: the variant that builds and runs the piece, itself unless something is written into the piece before.
            Pieces of one base may be joined into one. All variants of one base have the same quantisers, if any.
        quantisers: where they stand in the piece; None if there are none.
        everything: whether pooling, joins and moves stand between quantisers too, not heavy operators alone.
        built_as: the variant that compiles what this one loads, where both run the same files; empty for itself.
        last_resort: whether it runs whole models only, and those where nothing before it gives right results.
    """

    name: str = "default"
    arithmetic: Arithmetic = Arithmetic.FLOAT32
    device: str = "cpu"
    base: str = ""
    quantisers: Quantisers | None = None
    everything: bool = False
    built_as: str = ""
    last_resort: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base or self.name)

    @property
    def writes(self) -> bool:
        """Whether it differs by what is written into pieces: no whole file is run so."""
        return self.quantisers is not None or self.base != plain_name(self.name)

    @property
    def exact(self) -> bool:
        """Whether it computes in float32, so that its results differ by rounding alone."""
        return self.arithmetic is Arithmetic.FLOAT32


DEFAULT = Variant()
AS_IT_COMES = "as-it-comes"
"""Name of the variant with a library's own settings."""
_REWRITTEN = "~"
"""Stands between the name of a variant and that of the rewrite which is written into its pieces."""


def rewritten_name(variant: str, rewrite: str) -> str:
    """What matches of ``variant`` are called into which ``rewrite`` is written."""
    return f"{variant}{_REWRITTEN}{rewrite}"


def plain_name(variant: str) -> str:
    """The variant that a name is of, whether something is rewritten or not."""
    return variant.partition(_REWRITTEN)[0]


def serves(variant: Variant, device: str) -> bool:
    """Whether it runs where ``device`` is the target: on it, or on the host beside it."""
    return variant.device in (CPU, device)


def takes_part(variant: Variant, device: str, tolerance: float) -> bool:
    """Whether it serves target ``device``, and outputs with a relative error of ``tolerance`` leave room for it."""
    return serves(variant, device) and (variant.exact or variant.arithmetic.roundoff <= tolerance)


def engine_name(backend: str, variant: str) -> str:
    """A backend and one of its variants as people read them."""
    return backend if variant == DEFAULT.name else f"{backend}/{variant}"
