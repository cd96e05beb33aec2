"""Which numbers are multiplied and added, and how coarsely they are rounded."""

from __future__ import annotations

from enum import StrEnum


class Arithmetic(StrEnum):
    """What numbers are multiplied and added in; the value is its name in reports."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"

    @property
    def roundoff(self) -> float:
        """Unit roundoff: the largest relative error of rounding one number."""
        return _ROUNDOFF[self]


_ROUNDOFF = {
    Arithmetic.FLOAT32: 2.0**-24,
    Arithmetic.TF32: 2.0**-11,
    Arithmetic.BFLOAT16: 2.0**-8,
    Arithmetic.FLOAT16: 2.0**-11,
    Arithmetic.INT8: 2.0**-8,  # of the largest number of a tensor
}
