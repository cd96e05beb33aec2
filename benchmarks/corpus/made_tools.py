"""What ONNX Runtime's own tools make of a model: quantised, fused, in half precision, saved as optimised."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization import matmul_nbits_quantizer
from onnxruntime.transformers import float16, optimizer

from corpus.entry import below, normal
from corpus.made import Made
from corpus.made_exports import exported, seeded
from corpus.made_language import TEXT, TEXT_AXES, text_encoder
from corpus.made_nets import CachedDecoder, ConvNet, GatedConvNet, Recurrent

IMAGE = {"x": normal(1, 3, 96, 96)}
Change = Callable[[Path, Path], None]


def models() -> Iterator[Made]:
    """Every file of this module."""
    for name, net, draws in (("convnet", ConvNet, IMAGE), ("gated", GatedConvNet, IMAGE)):
        plain = exported(seeded(net), draws, 17)
        for form in (quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator):
            yield _made(f"{name}-static-{form.name.lower()}", plain, _static(form), draws)
        yield _made(f"{name}-dynamic", plain, _dynamic, draws)
        yield _made(f"{name}-float16", plain, _float16(False), draws)
        yield _made(f"{name}-float16-float-borders", plain, _float16(True), draws)
        for level in ("BASIC", "EXTENDED"):
            yield _made(f"{name}-saved-{level.lower()}", plain, _saved(level), draws)
    yield _made("convnet-static-qdq-int8", exported(seeded(ConvNet), IMAGE, 17), _static_int8, IMAGE)
    bert = exported(text_encoder("bert"), TEXT, 17, TEXT_AXES)
    yield _made("bert-dynamic", bert, _dynamic, TEXT)
    yield _made("bert-fused", bert, _fused(False), TEXT)
    yield _made("bert-fused-float16", bert, _fused(True), TEXT)
    yield _made("bert-fused-dynamic", bert, lambda a, b: _then(_fused(False), _dynamic, a, b), TEXT)
    frames = {"x": normal(2, 40, 24)}
    yield _made("lstm-dynamic", exported(seeded(Recurrent, "LSTM"), frames, 17, {"x": {1: "time"}}), _dynamic, frames)
    cache = {"ids": below(100, 1, 1), "cache_k": normal(2, 1, 4, 7, 16), "cache_v": normal(2, 1, 4, 7, 16)}
    axes = {"cache_k": {3: "past"}, "cache_v": {3: "past"}}
    decoder = exported(seeded(CachedDecoder), cache, 17, axes)
    for bits in (4, 8):
        yield _made(f"decoder-{bits}bits", decoder, _bits(bits), cache)


def _made(name: str, plain: onnx.ModelProto, change: Change, draws: Any) -> Made:
    """``change`` takes the path of the plain model and the one to write."""

    def save(path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "plain.onnx"
            onnx.save(plain, source)
            change(source, path)

    return Made(f"tools-{name}", f"onnxruntime {onnxruntime.__version__}'s tools", save, draws)


def _static(form: quantization.QuantFormat) -> Change:
    def change(source: Path, path: Path) -> None:
        quantization.quantize_static(source, path, _Images(), quant_format=form, per_channel=True)

    return change


def _static_int8(source: Path, path: Path) -> None:
    int8 = quantization.QuantType.QInt8
    quantization.quantize_static(source, path, _Images(), activation_type=int8, weight_type=int8)


class _Images(quantization.CalibrationDataReader):
    """Eight random images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._left = [rng.standard_normal((1, 3, 96, 96)).astype(np.float32) for _ in range(8)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return {"x": self._left.pop()} if self._left else None


def _dynamic(source: Path, path: Path) -> None:
    # Fused operators have no shapes that the quantiser knows: it is told that they are floats.
    quantization.quantize_dynamic(source, path, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})


def _float16(keep_borders: bool) -> Change:
    def change(source: Path, path: Path) -> None:
        onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=keep_borders), path)

    return change


def _saved(level: str) -> Change:
    """The model as ONNX Runtime saves it after its own optimisations."""

    def change(source: Path, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return change


def _fused(half: bool) -> Change:
    def change(source: Path, path: Path) -> None:
        model = optimizer.optimize_model(str(source), model_type="bert", num_heads=4, hidden_size=64)
        if half:
            model.convert_float_to_float16()
        model.save_model_to_file(str(path))

    return change


def _bits(bits: int) -> Change:
    def change(source: Path, path: Path) -> None:
        model = onnx.load(source)
        tool = matmul_nbits_quantizer.MatMulNBitsQuantizer(model, bits=bits, block_size=32, is_symmetric=True)
        tool.process()
        tool.model.save_model_to_file(str(path))

    return change


def _then(first: Change, second: Change, source: Path, path: Path) -> None:
    between = source.with_name("between.onnx")
    first(source, between)
    second(between, path)
