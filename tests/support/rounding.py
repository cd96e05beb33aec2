"""A backend with a choice of precision, as tests need one: what is less exact is faster by their clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from collage_evo.backends.base import Executable, Target
from collage_evo.backends.variants import DEFAULT, Arithmetic, Variant
from collage_evo.graph.ir.graph import Tensor
from tests.support.clock import spend
from tests.support.delegating import DelegatingBackend

ERROR, ROUNDING = 3e-3, 1e-6
"""Relative error of each piece in the low precision, and in float32."""
EXACT_S, LOW_S = 0.02, 0.001
"""What a run of each piece takes in float32, and in the low precision."""


class RoundingBackend(DelegatingBackend):
    """ONNX Runtime, whose low precision is fast and wrong by ``ERROR``, in processes with a ``SaidClock``."""

    name: ClassVar[str] = "rounding"
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT, Variant("low", Arithmetic.BFLOAT16))

    def runs_any_model(self, variant: Variant) -> bool:
        return True

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable:
        return _Rounding(self.load_honest(workdir, target, inputs, outputs), variant == DEFAULT)


class _Rounding:
    def __init__(self, honest: Executable, exact: bool) -> None:
        self._honest = honest
        self._exact = exact

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        honest = self._honest.bind(inputs, outputs)

        seconds, error = (EXACT_S, ROUNDING) if self._exact else (LOW_S, ERROR)

        def call() -> None:
            honest()
            spend(seconds)
            for array in outputs:
                array *= 1.0 + error

        return call
