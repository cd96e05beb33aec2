"""Shapes that a model does not take are named, with the sample and the limit, before anything is searched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage_evo.errors import InputError
from collage_evo.graph.load.ranges import shapes_in_ranges
from collage_evo.graph.load.trial import Trial, require_range, require_samples
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder

POSITIONS, WORDS = 50, 7


def encoder() -> onnx.ModelProto:
    """Words and positions, of which there are few."""
    net = Builder("encoder")
    ids, mask = net.input("ids", ("batch", "length"), TensorProto.INT64), net.input("mask", ("batch", "length"))
    length = net.op("Squeeze", net.op("Shape", ids, start=1, end=2))
    numbers = net.op("Range", net.const(np.int64(0)), length, net.const(np.int64(1)))
    place = net.op("Gather", net.const(np.ones((POSITIONS, 4), np.float32)), numbers)
    word = net.op("Gather", net.const(np.ones((WORDS, 4), np.float32)), ids)
    return net.model(net.op("Add", word, place), net.op("Relu", mask))


def rows_of_32() -> onnx.ModelProto:
    net = Builder("rows")
    return net.model(net.op("Reshape", net.input("x", ("n",)), net.ints(-1, 32)))


def square() -> onnx.ModelProto:
    """A float for each pair of inputs, as in attention."""
    net = Builder("square")
    x = net.input("x", ("n",))
    column, row = (net.op("Reshape", x, net.ints(*shape)) for shape in ((-1, 1), (1, -1)))
    return net.model(net.op("ReduceSum", net.op("Mul", column, row), keepdims=0))


def check(of: onnx.ModelProto, memory_bytes: float = math.inf, **sizes: Any) -> None:
    require_range(Trial(of, Reference(of)), shapes_in_ranges(of, sizes), memory_bytes)


def sample(length: int, word: int = 0, batch: int = 1) -> dict[str, np.ndarray]:
    return {"ids": np.full((batch, length), word), "mask": np.ones((batch, length), np.float32)}


def check_samples(*samples: dict[str, np.ndarray]) -> None:
    require_samples(encoder(), Reference(encoder()), samples, "data.npz")


def test_a_model_that_takes_the_range_is_taken() -> None:
    check(encoder(), length=f"1..{POSITIONS}", batch="1..3")
    check(encoder(), length=f"{POSITIONS}..{POSITIONS}", batch=2)
    check(rows_of_32(), n="64..64")
    check(rows_of_32(), n="32..640/32")
    check(rows_of_32(), n="96..672/32")
    check_samples(sample(3), sample(POSITIONS), sample(3, batch=2))


@pytest.mark.parametrize(
    ("of", "sizes", "message"),
    [
        (
            encoder(),
            {"length": "1..600", "batch": "1..8"},
            r"^model\.shapes: the model runs up to length 50, as ids: \[",
        ),
        (
            encoder(),
            {"length": "60..70", "batch": 1},
            r"the model does not run on ids: \[1, 60\], mask: \[1, 60\]: give",
        ),
        (
            rows_of_32(),
            {"n": "32..640"},
            r"runs at both ends of the range, but not on x: \[143\]: .*as 32..640/32 \(",
        ),
        (rows_of_32(), {"n": "5..640"}, r"does not run on x: \[5\]"),
    ],
)
def test_a_range_that_it_does_not_take_is_told_with_the_limit(
    of: onnx.ModelProto, sizes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        check(of, **sizes)
    assert "\n" not in str(refused.value)
    assert "(ONNX Runtime cannot run the model: " in str(refused.value)


def test_what_will_not_fit_into_memory_is_foreseen() -> None:
    check(square(), memory_bytes=2**31, n="1..1000")
    with pytest.raises(InputError, match=r"larger inputs than x: \[\d+\] do not fit into memory: give a range that"):
        check(square(), memory_bytes=2**28, n="1..10000000")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            (sample(3), sample(60), sample(4)),
            r"^sample 1 of data\.npz has ids: \[1, 60\], mask: \[1, 60\]: the model runs up to length 50, as "
            r"ids: \[1, 50\], mask: \[1, 50\]: leave it out of the data \(ONNX Runtime cannot run .*out of.*bounds",
        ),
        (
            (sample(3), sample(4), sample(3, batch=2), sample(60, batch=2)),
            r"^sample 3 of .* runs up to length 50, as",
        ),
        ((sample(60), sample(70)), r"^sample 0 of .* has ids: \[1, 60\], .*: the model does not run on it: leave it"),
        ((sample(3), sample(5, word=WORDS), sample(6)), r"^sample 1 of .* has ids: \[1, 5\], .* does not run on it"),
    ],
)
def test_a_sample_that_does_not_run_is_named_with_the_limit(
    samples: tuple[dict[str, np.ndarray], ...], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        check_samples(*samples)
    assert "\n" not in str(refused.value)
