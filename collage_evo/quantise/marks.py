"""Marks a model in which operators are to run in a lower precision, so that a backend can tell whether they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_INT8, _BFLOAT16, _PACKED = "collage_evo.int8", "collage_evo.bfloat16", "collage_evo.packed"


def mark_int8(model: onnx.ModelProto, heavy: int) -> None:
    """Write down how many heavy operators of ``model`` stand between quantisers that we wrote."""
    model.metadata_props.add(key=_INT8, value=str(heavy))


def heavy_in_int8(model: onnx.ModelProto) -> int:
    """How many heavy operators are to run in int8; 0 for a model that brought its quantisers with it."""
    return int(_told(model, _INT8) or 0)


def mark_bfloat16(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Write down the names of the operators of ``model`` that we wrote in bfloat16."""
    model.metadata_props.add(key=_BFLOAT16, value=" ".join(names))


def written_in_bfloat16(model: onnx.ModelProto) -> frozenset[str]:
    """Names of the operators that are to run in bfloat16; none for a model that came so."""
    return frozenset(_told(model, _BFLOAT16).split())


def mark_packed(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Write down the names of the products of ``model`` whose weights we wrote in int8."""
    model.metadata_props.add(key=_PACKED, value=" ".join(names))


def written_packed(model: onnx.ModelProto) -> frozenset[str]:
    """Names of the products that are to read weights in int8; none for a model that came so."""
    return frozenset(_told(model, _PACKED).split())


def _told(model: onnx.ModelProto, key: str) -> str:
    return next((entry.value for entry in model.metadata_props if entry.key == key), "")
