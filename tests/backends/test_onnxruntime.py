"""ONNX Runtime's second layout is a choice where it may win, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.graph.convert.read import build_graph
from collage_evo.measure.worker_context import unbuilt
from collage_evo.models.builder import Builder
from collage_evo.placement.failure import Fault
from collage_evo.testing.cases import CASES


@pytest.mark.parametrize(
    ("case", "variants"),
    [
        ("conv_1x1", ("default", "nchw")),
        ("conv_add_relu", ("default", "nchw")),
        ("conv_depthwise", ("default",)),
        ("conv_3d", ("default",)),
        ("residual_block", ("default",)),
        ("max_pool_behind_conv", ("default",)),
        ("relu", ("default",)),
    ],
)
def test_a_lone_convolution_has_a_choice_of_layout(case: str, variants: tuple[str, ...]) -> None:
    graph = build_graph(CASES[case]())
    offered = OnnxRuntimeBackend().variants_of(graph, graph.all_nodes)
    on_cpu = [variant for variant in offered if variant.device == "cpu"]
    assert [variant.name for variant in on_cpu if variant.int8_form is None] == list(variants)


def test_the_layouts_are_kept_apart(tmp_path: Path) -> None:
    backend, model = OnnxRuntimeBackend(), CASES["conv_1x1"]()
    built = [backend.build(model, Target(), variant, tmp_path) for variant in backend.variants[:2]]
    assert all(isinstance(piece, Built) for piece in built)
    assert built[0] != built[1]


@pytest.mark.parametrize(("heavy_bytes", "sessions"), [(2**26, 1), (1, 0)])
def test_a_heavy_model_is_not_loaded_only_to_see_that_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heavy_bytes: int, sessions: int
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("collage_evo.graph.ir.weights.HEAVY_BYTES", heavy_bytes)
    monkeypatch.setattr(OnnxRuntimeBackend, "open_session", lambda self, path, *more: opened.append(path))
    backend = OnnxRuntimeBackend()
    assert isinstance(backend.build(CASES["gemm_rows"](), Target(), backend.variant("default"), tmp_path), Built)
    assert len(opened) == sessions


def test_a_layout_of_convolutions_is_needless_without_any(tmp_path: Path) -> None:
    backend = OnnxRuntimeBackend()
    built = backend.build(CASES["gemm_rows"](), Target(), backend.variant("nchw"), tmp_path)
    assert isinstance(built, BuildFailure)
    assert unbuilt(built).fault is Fault.NEEDLESS


@pytest.mark.parametrize(("products", "taken"), [(10, True), (11, False)])
def test_a_layout_of_convolutions_is_needless_where_products_are_most(
    tmp_path: Path, products: int, taken: bool
) -> None:
    net, rng = Builder("patches"), np.random.default_rng(0)
    x = net.op("Conv", net.input("x", (1, 3, 8, 8)), net.const(rng.random((4, 3, 2, 2), np.float32)), strides=[2, 2])
    for _ in range(products):
        x = net.op("MatMul", x, net.const(rng.random((4, 4), np.float32)))
    backend = OnnxRuntimeBackend()
    built = backend.build(net.model(x), Target(), backend.variant("nchw"), tmp_path)
    assert isinstance(built, Built) == taken
    assert taken or unbuilt(built).fault is Fault.NEEDLESS
