"""A region on lanes tells what each of them does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Built, Target
from collage_evo.backends.capabilities import lanes_of
from collage_evo.backends.registry import get_backend
from collage_evo.models.builder import Builder
from collage_evo_lanes.backend import LanesBackend


def branches() -> onnx.ModelProto:
    """Two convolutions and a Relu on each of two branches, which are added."""
    net = Builder("branches")
    x = net.input("x", (1, 64, 28, 28))
    rng, ends = np.random.default_rng(0), []
    for _ in range(2):
        y = x
        for _ in range(2):
            weight = net.const(rng.standard_normal((64, 64, 3, 3)).astype(np.float32))
            y = net.op("Conv", y, weight, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        ends.append(net.op("Relu", y))
    return net.model(net.op("Add", *ends, output="sum"))


def test_each_lane_tells_its_operators_and_what_it_waits_for(tmp_path: Path) -> None:
    backend = LanesBackend()
    built = backend.build(branches(), replace(Target(), threads=2), backend.variant("onnxruntime"), tmp_path)
    assert isinstance(built, Built), built
    lanes = backend.lanes(tmp_path)
    joins = next(lane for lane, steps in enumerate(lanes) if len(steps) > 1)
    assert lanes[joins] == ("2 Conv, 1 Relu", f"after lane {1 - joins}: 1 Add")
    assert lanes[1 - joins] == ("2 Conv, 1 Relu",)


@pytest.mark.parametrize("name", ["onnxruntime", "ncnn"])
def test_a_library_s_own_pieces_run_nothing_side_by_side(name: str, tmp_path: Path) -> None:
    assert lanes_of(get_backend(name), tmp_path) == ()


def test_a_rewritten_piece_is_of_its_base_s_version() -> None:
    backend = LanesBackend()
    rewritten = backend.variant("onnxruntime~joined-products")
    assert backend.version_of(rewritten) == backend.version_of(backend.variant("onnxruntime"))
