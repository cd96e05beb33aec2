"""Marks a model in which operators are to run in a lower precision, so that a backend can tell whether they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from collage_evo.precision.quantise.arithmetic import Arithmetic

if TYPE_CHECKING:
    import onnx

_WRITTEN = "collage_evo.{}"
_INT8 = _WRITTEN.format(Arithmetic.INT8)


def mark_int8(model: onnx.ModelProto, heavy: int) -> None:
    """Write down how many heavy operators of ``model`` stand between quantisers that we wrote."""
    model.metadata_props.add(key=_INT8, value=str(heavy))


def heavy_in_int8(model: onnx.ModelProto) -> int:
    """How many heavy operators are to run in int8; 0 for a model that brought its quantisers with it."""
    return int(_metadata(model, _INT8) or 0)


def mark_written(model: onnx.ModelProto, arithmetic: Arithmetic, names: Iterable[str]) -> None:
    """Write down the names of the operators of ``model`` into which we wrote ``arithmetic``."""
    model.metadata_props.add(key=_WRITTEN.format(arithmetic), value=" ".join(names))


def written_in(model: onnx.ModelProto, *arithmetics: Arithmetic) -> frozenset[str]:
    """Names of the operators that are to run in one of ``arithmetics``; none for a model that came so."""
    return frozenset(name for one in arithmetics for name in _metadata(model, _WRITTEN.format(one)).split())


def _metadata(model: onnx.ModelProto, key: str) -> str:
    return next((entry.value for entry in model.metadata_props if entry.key == key), "")
