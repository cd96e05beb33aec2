"""Arithmetics of operators, and their roundoff."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Arithmetic(StrEnum):
    """The number types of products and sums; the value is the arithmetic's name in reports."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"
    INT8_WEIGHTS = "int8-weights"
    """float32 by weights stored in int8, with a scale for each output."""
    INT8_BLOCKS = "int8-blocks"
    """int8, with a scale for each block of 128 numbers of a sum; activations' scales are found at run time."""
    INT8_ROWS = "int8-rows"
    """int8, with a scale for each row of activations, found at run time, and for each output."""

    @property
    def roundoff(self) -> float:
        """Unit roundoff: the largest relative error of rounding one number."""
        return _FACTS[self].roundoff

    @property
    def weight_bytes(self) -> int:
        """Bytes of a heavy operator's weight in this arithmetic; 4 in float32."""
        return _FACTS[self].weight_bytes

    @property
    def number_bytes(self) -> int:
        """Bytes of any other number."""
        return _FACTS[self].number_bytes


class _Facts(NamedTuple):
    roundoff: float
    weight_bytes: int = 4
    number_bytes: int = 4


PACKED = (Arithmetic.INT8_WEIGHTS, Arithmetic.INT8_BLOCKS)
"""Arithmetics for products of few rows by constant weights, which gain by reading fewer bytes."""
_FACTS = {
    Arithmetic.FLOAT32: _Facts(2.0**-24),
    Arithmetic.TF32: _Facts(2.0**-11),
    Arithmetic.BFLOAT16: _Facts(2.0**-8, 2, 2),
    Arithmetic.FLOAT16: _Facts(2.0**-11, 2, 2),
    Arithmetic.INT8: _Facts(2.0**-8, 1),  # of the largest number of a tensor
    Arithmetic.INT8_WEIGHTS: _Facts(2.0**-8, 1),  # of the largest weight of an output
    Arithmetic.INT8_BLOCKS: _Facts(2.0**-8, 1),  # of the largest number of a block
    Arithmetic.INT8_ROWS: _Facts(2.0**-8, 1),  # of the largest number of a row
}
