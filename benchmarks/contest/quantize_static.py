"""ONNX Runtime's static quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from contest.engines import open_onnxruntime
from contest.task import CALIBRATION, Arrays, Task, feeds_of, read_samples

OPSET = 17
"""To which an older model is converted where its own opset cannot say what quantisation writes."""
AT_ONCE = 4
"""Samples whose tensors are kept together while ranges are taken; their number is a multiple of it."""
MIN_MAX = "MinMax"
HISTOGRAMS = 100
"""Most samples for the other ways to take ranges, which keep a histogram of each tensor: minutes for hundreds."""


class Reader:
    """Hands out samples one by one, as ``CalibrationDataReader`` asks for it."""

    def __init__(self, samples: Sequence[Arrays]) -> None:
        self._samples, self._left = samples, iter(samples)

    def get_next(self) -> Arrays | None:
        return next(self._left, None)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._left = iter(self._samples[start_index:end_index])

    def __len__(self) -> int:
        return len(self._samples)


def quantize(task: Task, folder: Path, ranges: str = MIN_MAX) -> Path:
    """The quantised model. QDQ, unsigned activations, signed weights by channel, as recommended for processors.

    ``ranges`` names a ``CalibrationMethod``, which keeps its own defaults.

    Raises:
        Exception: whatever ONNX Runtime or ``onnx`` raise.
    """
    try:
        path = _quantize(task, task.model, folder, ranges)
        open_onnxruntime(path, 1)
        return path
    except Exception:  # ONNX Runtime's have no base class of their own, and its tools raise ValueError and others
        model = onnx.load(task.model)
        if next(int(one.version) for one in model.opset_import if one.domain in ("", "ai.onnx")) >= OPSET:
            raise
        for left in folder.iterdir():
            left.unlink()
        newer = folder / "newer.onnx"
        onnx.save(onnx.version_converter.convert_version(model, OPSET), newer)
        return _quantize(task, newer, folder, ranges)


def _quantize(task: Task, model: Path, folder: Path, ranges: str) -> Path:
    """Fold and infer shapes, as recommended before quantisation, and quantise."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, path = folder / "prepared.onnx", folder / "quantised.onnx"
    quant_pre_process(model, prepared, skip_symbolic_shape=True)  # all shapes are fixed, which needs no symbols
    inputs, samples = task.inputs(), read_samples(task.samples)[: CALIBRATION if ranges == MIN_MAX else HISTOGRAMS]
    quantize_static(
        prepared,
        path,
        Reader([feeds_of(sample, inputs) for sample in samples[: len(samples) // AT_ONCE * AT_ONCE]]),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod[ranges],
        extra_options={"CalibStridedMinMax": AT_ONCE},  # of every method, despite its name
    )
    return path
