"""Marks a model in which operators are to run in int8, so that a backend can tell whether they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_KEY = "collage_evo.int8"


def mark_int8(model: onnx.ModelProto, heavy: int) -> None:
    """Write down how many heavy operators of ``model`` stand between quantisers that we wrote."""
    model.metadata_props.add(key=_KEY, value=str(heavy))


def heavy_in_int8(model: onnx.ModelProto) -> int:
    """How many heavy operators are to run in int8; 0 for a model that brought its quantisers with it."""
    return next((int(entry.value) for entry in model.metadata_props if entry.key == _KEY), 0)
