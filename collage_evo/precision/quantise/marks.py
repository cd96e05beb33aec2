"""Marks in a model of the operators to run in a lower precision, by which a backend checks that they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from collage_evo.precision.quantise.arithmetic import Arithmetic

if TYPE_CHECKING:
    import onnx

_WRITTEN = "collage_evo.{}"
_INT8 = _WRITTEN.format(Arithmetic.INT8)


def mark_int8(model: onnx.ModelProto, heavy: int) -> None:
    """Record in ``model`` how many heavy operators have quantisers that this package wrote."""
    model.metadata_props.add(key=_INT8, value=str(heavy))


def heavy_in_int8(model: onnx.ModelProto) -> int:
    """Number of heavy operators to run in int8; 0 for a model with only its own quantisers."""
    return int(_metadata(model, _INT8) or 0)


def mark_written(model: onnx.ModelProto, arithmetic: Arithmetic, names: Iterable[str]) -> None:
    """Record in ``model`` the names of the operators into which this package wrote ``arithmetic``."""
    model.metadata_props.add(key=_WRITTEN.format(arithmetic), value=" ".join(names))


def written_in(model: onnx.ModelProto, *arithmetics: Arithmetic) -> frozenset[str]:
    """Names of the operators to run in one of ``arithmetics``; none for a model that has it in its own file."""
    return frozenset(name for one in arithmetics for name in _metadata(model, _WRITTEN.format(one)).split())


def _metadata(model: onnx.ModelProto, key: str) -> str:
    return next((entry.value for entry in model.metadata_props if entry.key == key), "")
