"""Every rewrite of the catalogue computes what it replaces, alone and inside larger regions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.graph.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.rewrites.catalogue import REWRITES, rewrite_named
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.testing.rewrites.cases import rewritable_models
from collage_evo.testing.rewrites.check import rewrite_problems


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_computes_what_it_replaces(rewrite: Rewrite) -> None:
    @settings(max_examples=15)
    @given(rewritable_models(rewrite.name), st.integers(0, 2**31))
    def check(model: onnx.ModelProto, seed: int) -> None:
        assert list(rewrite_problems(rewrite, model, seed)) == []

    check()


def conv(b: Builder, x: str, op: str, *shape: int, **attributes: Any) -> str:
    """A convolution, transposed or not, by random weights."""
    return b.op(op, x, b.const(np.random.default_rng(0).standard_normal(shape).astype(np.float32)), **attributes)


OLD: dict[str, Callable[[Builder], Sequence[str]]] = {
    "joined-convolutions": lambda b: [conv(b, "x", "Conv", made, 4, 1, 1) for made in (2, 3)],
    "mean-pools": lambda b: [b.op("GlobalAveragePool", "x")],
    "phase-convolutions": lambda b: [conv(b, "x", "ConvTranspose", 4, 2, 3, 3, strides=[2, 2], pads=[1] * 4)],
    "pixel-products": lambda b: [conv(b, b.op("GlobalAveragePool", "x"), "Conv", 3, 4, 1, 1)],
    "separated-pools": lambda b: [b.op("MaxPool", "x", kernel_shape=[5, 5], strides=[2, 1], pads=[2] * 4)],
    "stacked-frames": lambda b: [conv(b, "v", "Conv", 3, 2, 3, 3, 3, pads=[1] * 6)],
}


@pytest.mark.parametrize("name", OLD)
def test_an_old_operator_set_is_kept(name: str) -> None:
    b = Builder("old")
    b.input("x", (1, 4, 9, 8))
    b.input("v", (1, 2, 4, 6, 6))
    model = b.model(*OLD[name](b), opset=9)
    assert any(rewrite_named(name).sites(build_graph(model)))
    assert list(rewrite_problems(rewrite_named(name), model)) == []


def test_names_tell_rewrites_apart_and_can_be_part_of_a_variants_name() -> None:
    names = [rewrite.name for rewrite in REWRITES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in names)
