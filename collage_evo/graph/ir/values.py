"""Values of inputs and outputs of any ONNX type, as plain arrays or lists of them, saved in ``.npz`` files."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.graph.ir.elements import as_bytes, is_extended

Values = Mapping[str, Any]
"""Inputs or outputs, by name."""


def plain(value: Any) -> Any:
    """``value`` with strings as NumPy's own, and maps as lists of keys and values, so that nothing needs pickling."""
    if isinstance(value, Mapping):
        return [np.array(list(value)), np.array(list(value.values()))]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    array = np.asarray(value)
    return array.astype(str) if array.dtype.kind == "O" else array


def identical(left: Any, right: Any) -> bool:
    """Whether two values, as :func:`plain` gives them, are the same to the bit: a NaN is equal to itself."""
    if isinstance(left, list) or isinstance(right, list):
        both = isinstance(left, list) and isinstance(right, list) and len(left) == len(right)
        return both and all(map(identical, left, right))
    a, b = np.asarray(left), np.asarray(right)
    return a.shape == b.shape and bool(np.array_equal(_comparable(a), _comparable(b)))


def _comparable(array: np.ndarray) -> np.ndarray:
    """Numbers as their bytes; anything else as it is."""
    return array if array.dtype.kind in "OUST" else np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def save_values(path: Path, groups: Mapping[str, Mapping[str, Any]]) -> None:
    """Write named values, group by group, in the form of :func:`plain`."""
    arrays: dict[str, np.ndarray] = {}
    for group, values in groups.items():
        for name, value in values.items():
            _flatten(arrays, f"{group}:{name}", "", value)
    write_arrays(path, arrays)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by any names as an ``.npz``, objects as strings; nothing is pickled."""
    # Only newer versions of NumPy have numpy.savez's option to pickle nothing.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, as_bytes(plain(array)), allow_pickle=False)


def read_values(path: Path) -> dict[str, dict[str, Any]]:
    """Read values written by :func:`save_values`."""
    groups: dict[str, dict[str, Any]] = {}
    with np.load(path, allow_pickle=False) as data:
        for key in data.files:
            place, _, rest = key.partition("|")
            dtype, _, where = rest.partition("|")
            group, _, name = where.partition(":")
            array = data[key] if not dtype else data[key].view(np.dtype(dtype))
            values = groups.setdefault(group, {})
            if not place:
                values[name] = array
            elif place == "empty":
                values[name] = []
            else:
                _put(values, name, [int(index) for index in place.split(".")], array)
    return groups


def _flatten(arrays: dict[str, np.ndarray], where: str, place: str, value: Any) -> None:
    """The key holds the position in nested lists, the dtype where NumPy lacks it, group and name."""
    if isinstance(value, list):
        if not value and not place:
            arrays[f"empty||{where}"] = np.zeros(0)
        for index, item in enumerate(value):
            _flatten(arrays, where, f"{place}.{index}" if place else str(index), item)
        return
    array = np.asarray(value)
    dtype = array.dtype.name if is_extended(array) else ""
    arrays[f"{place}|{dtype}|{where}"] = array


def _put(values: dict[str, Any], name: str, place: Sequence[int], array: np.ndarray) -> None:
    here = values.setdefault(name, [])
    for index in place[:-1]:
        while len(here) <= index:
            here.append([])
        here = here[index]
    here.append(array)
