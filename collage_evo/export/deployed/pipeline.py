"""Runs the files in this folder one after the other, by pipeline.json. Needs NumPy and their libraries."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ALIGNMENT = 64
"""Alignment in bytes."""
VARIABLES = frozenset({"GOMP_SPINCOUNT", "OMP_NUM_THREADS", "TVM_THREAD_POOL_SPIN_COUNT"})
"""The variables that libraries' threads obey, each a number: a manifest sets no others."""


class Pipeline:
    """A loaded answer. Not thread-safe: create one for each thread."""

    def __init__(self, folder: Path = HERE) -> None:
        manifest = json.loads((folder / "pipeline.json").read_text())
        for variable, value in environment(manifest).items():  # libraries read it when they are first loaded
            os.environ.setdefault(variable, value)
        self.inputs, self.outputs, self._limits = manifest["inputs"], manifest["outputs"], manifest["limits"]
        self._input_limits = importlib.import_module("input_limits")
        self._tensors = manifest["tensors"]
        takes_open = any(-1 in self._tensors[name]["shape"] for name in self.inputs)
        self._declared = manifest["declared"]["inputs"] if takes_open else []
        memory = np.zeros(manifest["arena_bytes"] + ALIGNMENT, np.uint8)
        arena = memory[-memory.ctypes.data % ALIGNMENT :]
        self._values = {name: _array(arena, one) for name, one in self._tensors.items() if one["offset"] is not None}
        self._static = frozenset(self._values)
        self._calls = [self._call(folder, piece) for piece in manifest["pieces"]]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, in arrays that the caller owns, for one array per input."""
        values = {name: self._checked(name, feeds[name]) for name in self.inputs}
        self._require_agreement(values)
        for name, value in values.items():
            if name in self._static:
                np.copyto(self._values[name], value)
            else:
                self._values[name] = np.asarray(value, order="C")
        self.execute()
        ours = self._static.union(self.inputs)
        # Arrays that libraries allocated are passed on, not copied: a copy would need the memory twice.
        allocated = {name: self._values.pop(name) for name in list(self._values) if name not in ours}
        return {name: allocated[name] if name in allocated else self._values[name].copy() for name in self.outputs}

    def execute(self) -> None:
        """Run on the present contents of the inputs."""
        for call in self._calls:
            call()

    def _checked(self, name: str, array: Any) -> np.ndarray:
        """``array`` as a plain one that fits. With limits it is copied first: the caller's may still change."""
        tensor = self._tensors[name]
        try:
            value: np.ndarray = self._input_limits.plain_array(array)
        except self._input_limits.MaskedValues as error:
            raise ValueError(f"{name} {error}") from error
        if name in self._limits:
            value = np.array(value)
        fits = len(value.shape) == len(tensor["shape"]) and all(
            expected in (-1, size) for expected, size in zip(tensor["shape"], value.shape, strict=True)
        )
        if value.dtype != tensor["dtype"] or not fits:
            wanted = f"{tensor['dtype']}{tensor['shape']}"
            raise ValueError(f"{name} is {value.dtype}{list(value.shape)}, not {wanted}")
        if name in self._limits:  # values outside would read foreign memory, or be truncated
            low, end = self._limits[name]
            wrong = self._input_limits.first_outside(value, low, end)
            if wrong is not None:
                raise ValueError(f"{name} is to be from {low} to {end - 1}, not {wrong}")
        return value

    def _require_agreement(self, values: Mapping[str, np.ndarray]) -> None:
        """Sizes of one name are equal where shapes are open: an operator may take one that is 1 for any other."""
        sizes: dict[str, int] = {}
        for one in self._declared:
            for name, size in zip(one["shape"], values[one["name"]].shape, strict=False):
                if isinstance(name, str) and sizes.setdefault(name, size) != size:
                    raise ValueError(f"{name!r} is {size} in {one['name']!r} and {sizes[name]} in an input before it")

    def _call(self, folder: Path, manifest: Mapping[str, Any]) -> Callable[[], object]:
        piece = importlib.import_module(manifest["loader"]).Piece(folder, manifest)
        if self._static.issuperset((*manifest["inputs"], *manifest["outputs"])):
            inputs, outputs = ([self._values[name] for name in manifest[side]] for side in ("inputs", "outputs"))
            call: Callable[[], object] = piece.bind(inputs, outputs)
            return call
        return partial(self._run_open, piece, manifest["inputs"], manifest["outputs"])

    def _run_open(self, piece: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        for name, output in zip(outputs, piece.run([self._values[name] for name in inputs]), strict=True):
            if name in self._static:
                np.copyto(self._values[name], output)
            else:
                self._values[name] = output


def environment(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    """Variables that the manifest sets."""
    variables: Mapping[str, str] = manifest["environment"]
    for variable, value in variables.items():
        if variable not in VARIABLES or not value.isdecimal():
            raise ValueError(f"pipeline.json sets the variable {variable!r} to {value!r}: do not use it")
    return variables


def _array(arena: np.ndarray, manifest: Mapping[str, Any]) -> np.ndarray:
    return np.ndarray(manifest["shape"], manifest["dtype"], arena, manifest["offset"])
