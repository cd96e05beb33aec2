"""Registry of cases: functions that fill a builder, by name, and helpers that most of them begin with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from collage_evo.models.builder import Builder

CASES: dict[str, Callable[[], onnx.ModelProto]] = {}
"""Maps a name to the function that makes the model."""

Make = Callable[[Builder], Sequence[str] | str]

_RNG_SEED = 7


def case(make: Make) -> Make:
    """Register ``make``, which fills a builder and returns its outputs, under its name."""
    CASES[make.__name__] = lambda: _model(make, Builder(make.__name__))
    return make


def also_behind_conv(make: Make) -> Make:
    """Register ``make`` a second time, with its images computed by convolutions."""
    name = f"{make.__name__}_behind_conv"
    CASES[name] = lambda: _model(make, BehindConv(name))
    return make


def _model(make: Make, builder: Builder) -> onnx.ModelProto:
    outputs = make(builder)
    return builder.model(*([outputs] if isinstance(outputs, str) else outputs))


def weight(*shape: int, low: float = -1.0) -> np.ndarray:
    """Uniform values, the same for the same shape, small enough to keep sums near one."""
    rng = np.random.default_rng(_RNG_SEED + sum(shape))
    fan_in = max(1, int(np.prod(shape[1:])))
    return np.asarray(rng.uniform(low, 1.0, shape) / np.sqrt(fan_in), np.float32)


class BehindConv(Builder):
    """Puts a convolution between each image input and its reader.

    A converter that has to guess the batch axis knows it then; without one it may guess differently.
    """


def image(b: Builder, channels: int = 8, height: int = 13, width: int = 11, name: str = "x") -> str:
    x = b.input(name, (1, channels, height, width))
    return conv(b, x, (channels, channels, 1, 1)) if isinstance(b, BehindConv) else x


def conv(b: Builder, x: str, kernel: tuple[int, ...], bias: bool = True, **attributes: Any) -> str:
    """A convolution with a weight of the shape ``kernel``."""
    inputs = [x, b.const(weight(*kernel))]
    if bias:
        inputs.append(b.const(weight(kernel[0])))
    return b.op("Conv", *inputs, kernel_shape=list(kernel[2:]), **attributes)


@dataclass(frozen=True)
class Given:
    """An input of a model, by default an image of eight channels."""

    shape: tuple[int, ...] = (1, 8, 13, 11)
    name: str = "x"


Input = Given | np.ndarray | np.generic | str
"""Value of the input: the model's, a constant, or "" for none."""


def one(name: str, op_type: str, *inputs: Input, behind_conv: bool = False, **attributes: Any) -> None:
    """Register a single operator; with ``behind_conv`` a second time, as by :func:`also_behind_conv`."""

    def make(b: Builder) -> str:
        return b.op(op_type, *(_tensor(b, given) for given in inputs), **attributes)

    make.__name__ = name
    case(make)
    if behind_conv:
        also_behind_conv(make)


def convolution(
    name: str, shape: tuple[int, ...], kernel: tuple[int, ...], bias: bool = True, twice: bool = False, **more: Any
) -> None:
    """Register a convolution of an image with constant weights; ``twice``, behind another one too."""
    weights = [weight(*kernel), *([weight(kernel[0])] if bias else [])]
    one(name, "Conv", Given(shape), *weights, kernel_shape=list(kernel[2:]), behind_conv=twice, **more)


def _tensor(b: Builder, given: Input) -> str:
    if isinstance(given, Given):
        # A gate is no image, and neither are rows and weights.
        if len(given.shape) == 4 and given.shape[0] == 1 < min(given.shape[1], math.prod(given.shape[2:])):
            return image(b, *given.shape[1:], name=given.name)
        return b.input(given.name, given.shape)
    return given if isinstance(given, str) else b.const(given)


def ints(*values: int) -> np.ndarray:
    """A shape, or axes."""
    return np.array(values, np.int64)
