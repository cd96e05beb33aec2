"""Keras models as tf2onnx writes them: channels last inside, odd names, Reshape and Transpose in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import tf2onnx

from corpus.entry import Draw, below, normal
from corpus.made import Made

layers: Any = keras.layers


def models() -> Iterator[Made]:
    """Every conversion of this module."""
    keras.utils.set_random_seed(0)
    image = tf.TensorSpec((None, 64, 64, 3), tf.float32, "x")
    for opset in (13, 17):
        yield _made(f"convnet-{opset}", _convnet(), image, opset, normal(1, 64, 64, 3))
    yield _made("lstm-15", _lstm(), tf.TensorSpec((None, None), tf.int32, "x"), 15, below(50, 1, 20))
    yield _made("attention-15", _attention(), tf.TensorSpec((None, 12, 32), tf.float32, "x"), 15, normal(1, 12, 32))


def _made(name: str, net: Any, spec: Any, opset: int, draw: Draw) -> Made:
    source = f"tf2onnx {tf2onnx.__version__}, opset {opset}"
    return Made(f"keras-{name}", source, _save(net, spec, opset), {"x": draw})


def _save(net: Any, spec: Any, opset: int) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        function = tf.function(lambda x: net(x, training=False), input_signature=[spec])
        tf2onnx.convert.from_function(function, [spec], opset=opset, output_path=str(path))

    return save


def _convnet() -> Any:
    x = inputs = keras.Input((64, 64, 3))
    for width in (16, 32, 64):
        x = layers.SeparableConv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D()(layers.Activation("swish")(x))
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))


def _lstm() -> Any:
    x = inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(50, 32)(x)
    x = layers.Bidirectional(layers.LSTM(32, return_sequences=True))(x)
    return keras.Model(inputs, layers.Dense(5, "softmax")(layers.GRU(16)(x)))


def _attention() -> Any:
    x = inputs = keras.Input((12, 32))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8)(x, x))
    return keras.Model(inputs, layers.Dense(4)(layers.Conv1D(16, 3, activation="relu")(x)))
