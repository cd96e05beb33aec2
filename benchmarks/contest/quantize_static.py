"""ONNX Runtime's static quantisation, whole or with the worst nodes left in float32 until a budget is kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from contest.engines import open_onnxruntime
from contest.judge import Judge, keeps, lost
from contest.task import CALIBRATION, Sample, Task, feeds_of, read_samples

OPSET = 17
"""To which an older model is converted where its own opset cannot say what quantisation writes."""
AT_ONCE = 4
"""Samples whose tensors are kept together while ranges are taken; their number is a multiple of it."""
MIN_MAX = "MinMax"
HISTOGRAMS = 100
"""Most samples for the other ways to take ranges, which keep a histogram of each tensor: minutes for hundreds."""
WATCHED = 8
"""Samples over which tensors are compared with and without quantisation: all tensors of all of them are kept."""


class Reader:
    """Hands out samples one by one, as ``CalibrationDataReader`` asks for it."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples, self._left = samples, iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._left = iter(self._samples[start_index:end_index])

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Sample:
        return next(self._left)


def quantize(task: Task, folder: Path, ranges: str = MIN_MAX) -> Path:
    """The quantised model. QDQ, unsigned activations, signed weights by channel, as recommended for processors.

    ``ranges`` names a ``CalibrationMethod``, which keeps its own defaults.

    Raises:
        Exception: whatever ONNX Runtime or ``onnx`` raise.
    """
    return _Quantiser(task, folder, ranges).quantised(())


def quantize_and_exclude(task: Task, folder: Path, budget: float) -> Path:
    """The quantised model that leaves the fewest of the worst nodes in float32 and keeps ``budget``.

    Nodes are ranked once, by the signal-to-noise ratio of quantisation at their tensors, as ``qdq_loss_debug`` tells
    it. Their number is doubled until the budget is kept, and bisected from there.

    Raises:
        Exception: as :func:`quantize`.
    """
    quantiser, judge = _Quantiser(task, folder), Judge(task, task.samples)
    right = judge.scores(open_onnxruntime(task.model, 0))

    def good(path: Path) -> bool:
        return keeps(lost(judge.scores(open_onnxruntime(path, 0)), right), budget)

    whole = quantiser.quantised(())
    if good(whole):
        return whole
    worst = _worst_first(quantiser, whole)
    broken, excluded = 0, 1
    while excluded < len(worst) and not good(quantiser.quantised(worst[:excluded])):
        broken, excluded = excluded, 2 * excluded
    excluded = min(excluded, len(worst))
    while excluded - broken > 1:
        middle = (excluded + broken) // 2
        if good(quantiser.quantised(worst[:middle])):
            excluded = middle
        else:
            broken = middle
    return quantiser.quantised(worst[:excluded])


class _Quantiser:
    """Prepares a task's model and takes its ranges once."""

    def __init__(self, task: Task, folder: Path, ranges: str = MIN_MAX) -> None:
        most = CALIBRATION if ranges == MIN_MAX else HISTOGRAMS
        inputs, samples = task.inputs(), read_samples(task.samples)[:most]
        self.samples = [feeds_of(sample, inputs) for sample in samples[: len(samples) // AT_ONCE * AT_ONCE]]
        self.folder, self.prepared, self._ranges = folder, folder / "prepared.onnx", ranges
        try:
            self._prepare(task.model)
            open_onnxruntime(self.quantised(()), 1)
        except Exception:  # ONNX Runtime's have no base class of their own, and its tools raise ValueError and others
            model = onnx.load(task.model)
            if _opset(model) >= OPSET:
                raise
            for left in folder.iterdir():
                left.unlink()
            newer = folder / "newer.onnx"
            onnx.save(onnx.version_converter.convert_version(model, OPSET), newer)
            self._prepare(newer)

    def quantised(self, excluded: Collection[str]) -> Path:
        """The model with all nodes but ``excluded`` quantised, as far as ONNX Runtime quantises them."""
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

        path = self.folder / f"without_{len(excluded)}.onnx"
        if not path.exists():
            quantize_static(
                self.prepared,
                path,
                Reader(self.samples),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=list(excluded),
                calibrate_method=CalibrationMethod[self._ranges],
                extra_options={"CalibStridedMinMax": AT_ONCE},  # of every method, despite its name
                calibration_cache_path=self.folder / "ranges.json",
            )
        return path

    def _prepare(self, model: Path) -> None:
        """Fold and infer shapes, as recommended before quantisation; every node gets a name to be excluded by."""
        from onnxruntime.quantization.shape_inference import quant_pre_process

        # All shapes are fixed, which needs no symbols.
        quant_pre_process(model, self.prepared, skip_symbolic_shape=True)
        made = onnx.load(self.prepared)
        for index, node in enumerate(made.graph.node):
            node.name = node.name or f"node_{index}"
        onnx.save(made, self.prepared)


def _worst_first(quantiser: _Quantiser, whole: Path) -> list[str]:
    """Names of the nodes at quantised tensors, those with the least signal over noise first."""
    from onnxruntime.quantization import qdq_loss_debug

    watched: list[Any] = []
    for path in (whole, quantiser.prepared):
        more = path.with_suffix(".watched.onnx")
        qdq_loss_debug.modify_model_output_intermediate_tensors(path, more)
        reader = Reader(quantiser.samples[:WATCHED])
        watched.append(qdq_loss_debug.collect_activations(str(more), reader))
    pairs = qdq_loss_debug.create_activation_matching(*watched)
    errors = qdq_loss_debug.compute_activation_error(pairs)
    ratios = {name: error["qdq_err"] for name, error in errors.items()}
    graph = onnx.load(quantiser.prepared, load_external_data=False).graph
    by_node = {node.name: [ratios[n] for n in _tensors(node) if n in ratios] for node in graph.node}
    ranked = {name: min(values) for name, values in by_node.items() if values}
    return sorted(ranked, key=lambda name: float(np.nan_to_num(ranked[name], nan=-np.inf)))


def _tensors(node: onnx.NodeProto) -> list[str]:
    return [*node.input, *node.output]


def _opset(model: onnx.ModelProto) -> int:
    return next(int(one.version) for one in model.opset_import if one.domain in ("", "ai.onnx"))
