"""Tensors of a quantised region under construction, in every form that its operators read.

A tensor has a canonical name, and from it one for each form: ``t_q`` are its integers, of ``t_scale`` and ``t_zero``,
and ``t_dq`` are the numbers behind both quantisers. Each form is written once, when the first operator reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.precision.quantise.scales import Scale


class Tensors:
    """Names of the forms of tensors, with canonical names and scales; writes the operators and constants for them."""

    def __init__(self, scales: Mapping[str, Scale]) -> None:
        self.written: list[onnx.NodeProto] = []
        self.behind: dict[str, str] = {}
        """Names of the written tensors behind both quantisers, by canonical name."""
        self.scales = scales
        self._constants: dict[str, np.ndarray] = {}
        self._there: set[str] = set()
        """Names of forms that are written."""

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add ``array`` as the constant ``name``, which always has the same numbers."""
        self._constants.setdefault(name, array)
        return name

    def integers(self, name: str, alias: str = "") -> tuple[str, str, str]:
        """The tensor ``name`` as integers, with scale and zero point; ``alias`` is its name in its operator."""
        scale = self.scales[name]
        factor = self.constant(f"{name}_scale", np.array(scale.scale, np.float32))
        zero = self.constant(f"{name}_zero", np.array(scale.zero_point))
        return self._once("QuantizeLinear", [alias or name, factor, zero], f"{name}_q"), factor, zero

    def dynamic_integers(self, name: str) -> tuple[str, str, str]:
        """The same with the range of each run."""
        parts = f"{name}_q", f"{name}_scale", f"{name}_zero"
        self._once("DynamicQuantizeLinear", [name], *parts)
        return parts

    def rounded(self, name: str, alias: str = "") -> str:
        """The tensor behind both quantisers. It has its own name where its operator has another for it, ``alias``."""
        usual = name if alias not in ("", name) else f"{name}_dq"
        output = self.behind.setdefault(name, usual)
        return self._once("DequantizeLinear", self.integers(name, alias), output)

    def from_zero(self, name: str) -> str:
        """The tensor behind both quantisers, as if the least of its numbers were zero."""
        integers, factor, _ = self.integers(name)
        return self._once("DequantizeLinear", [integers, factor], f"{name}_from_zero")

    def laid_out(self, name: str, pads: Sequence[int], shape: Sequence[int]) -> str:
        """The tensor behind both quantisers, its integers padded by ``pads`` and reshaped to ``shape``."""
        integers, factor, zero = self.integers(name)
        if pads:
            integers = self._moved("Pad", integers, pads, zero)
        if shape:
            integers = self._moved("Reshape", integers, shape)
        return self._once("DequantizeLinear", [integers, factor, zero], f"{integers}_dequantizelinear")

    def channels(self, name: str, numbers: np.ndarray, scales: np.ndarray, axis: int) -> str:
        """The constant ``name`` as integers behind a DequantizeLinear, with scales along ``axis``; once for equal
        integers."""
        inner = f"{name}_{numbers.dtype.name}"
        while f"{inner}_q" in self._constants:
            same = self._constants[f"{inner}_scale"], self._constants[f"{inner}_q"]
            if np.array_equal(same[0], scales) and np.array_equal(same[1], numbers):
                return f"{inner}_dq"
            inner += "_"
        parts = self._parts(inner, numbers, scales)
        return self._once("DequantizeLinear", parts, f"{inner}_dq", axis=axis)

    def matrix(self, name: str, numbers: np.ndarray, scales: np.ndarray, axis: int) -> tuple[str, str, str]:
        """The matrix ``name`` as integers with the outputs last, their scales and zero points."""
        return self._parts(f"{name}_int8_axis{axis}", numbers if axis else numbers.T, scales)

    def finish(self, model: onnx.ModelProto) -> None:
        """Name the nodes, and add the constants to ``model``."""
        for place, proto in enumerate(self.written):
            proto.name = f"n{place}_{proto.op_type}"
        constants = (numpy_helper.from_array(array, name) for name, array in self._constants.items())
        model.graph.initializer.extend(constants)

    def _parts(self, name: str, numbers: np.ndarray, scales: np.ndarray) -> tuple[str, str, str]:
        return (
            self.constant(f"{name}_q", np.ascontiguousarray(numbers)),
            self.constant(f"{name}_scale", np.ascontiguousarray(scales)),
            self.constant(f"{name}_zero", np.zeros(scales.shape, numbers.dtype)),
        )

    def _moved(self, op_type: str, tensor: str, by: Sequence[int], *parameters: str) -> str:
        output = "_".join(map(str, (tensor, op_type.lower(), *by)))
        amounts = self.constant(f"{output}_by", np.array(by, np.int64))
        return self._once(op_type, [tensor, amounts, *parameters], output)

    def _once(self, op_type: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        """The first of ``outputs`` of an operator, which is written once."""
        if outputs[0] not in self._there:
            self._there.update(outputs)
            self.written.append(helper.make_node(op_type, list(inputs), list(outputs), **attributes))
        return outputs[0]
