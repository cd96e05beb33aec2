"""Which numbers are multiplied and added, and how coarsely they are rounded."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Arithmetic(StrEnum):
    """What numbers are multiplied and added in; the value is its name in reports."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"
    INT8_WEIGHTS = "int8-weights"
    """float32 by weights that are kept in int8, with a scale for each output."""
    INT8_BLOCKS = "int8-blocks"
    """int8, with a scale for each block of 128 numbers of a sum, that of activations found at run time."""

    @property
    def roundoff(self) -> float:
        """Unit roundoff: the largest relative error of rounding one number."""
        return _FACTS[self].roundoff

    @property
    def weight_bytes(self) -> int:
        """What a heavy operator's weight takes in it, of the 4 bytes of a number of float32."""
        return _FACTS[self].weight_bytes

    @property
    def number_bytes(self) -> int:
        """What any other number takes."""
        return _FACTS[self].number_bytes


class _Facts(NamedTuple):
    roundoff: float
    weight_bytes: int = 4
    number_bytes: int = 4


PACKED = (Arithmetic.INT8_WEIGHTS, Arithmetic.INT8_BLOCKS)
"""Of products by constant weights that few rows are multiplied by: what is won is that less is read."""
_FACTS = {
    Arithmetic.FLOAT32: _Facts(2.0**-24),
    Arithmetic.TF32: _Facts(2.0**-11),
    Arithmetic.BFLOAT16: _Facts(2.0**-8, 2, 2),
    Arithmetic.FLOAT16: _Facts(2.0**-11, 2, 2),
    Arithmetic.INT8: _Facts(2.0**-8, 1),  # of the largest number of a tensor
    Arithmetic.INT8_WEIGHTS: _Facts(2.0**-8, 1),  # of the largest weight of an output
    Arithmetic.INT8_BLOCKS: _Facts(2.0**-8, 1),  # of the largest number of a block
}
