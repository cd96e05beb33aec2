"""In which ways a backend runs pieces: its variants as records, and whether one takes part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Arithmetic(StrEnum):
    """What numbers are multiplied and added in; the value is its name in reports."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def roundoff(self) -> float:
        """Unit roundoff: the largest relative error of rounding one number."""
        return {"float32": 2.0**-24, "tf32": 2.0**-11, "bfloat16": 2.0**-8, "float16": 2.0**-11}[self.value]


@dataclass(frozen=True)
class Variant:
    """One way in which a backend builds and runs a piece.

    Attributes:
        name: tells it apart from the backend's others, in reports, artifacts and databases.
        arithmetic: float32 unless it trades accuracy for speed.
        device: ``cpu`` or ``cuda``.
    """

    name: str = "default"
    arithmetic: Arithmetic = Arithmetic.FLOAT32
    device: str = "cpu"


DEFAULT = Variant()


def takes_part(variant: Variant, device: str, tolerance: float) -> bool:
    """Whether it runs on ``device``, and outputs with a relative error of ``tolerance`` leave room for it."""
    exact = variant.arithmetic is Arithmetic.FLOAT32
    return variant.device == device and (exact or variant.arithmetic.roundoff <= tolerance)


def engine_name(backend: str, variant: str) -> str:
    """A backend and one of its variants as people read them."""
    return backend if variant == DEFAULT.name else f"{backend}/{variant}"
