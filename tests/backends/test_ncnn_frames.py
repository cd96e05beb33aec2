"""3-D convolutions as 2-D ones: what becomes one network, and how many frames a run of it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.backends.ncnn.frames import FramesPlan, read_frames, write_frames
from collage_evo.graph.read import build_graph
from collage_evo.testing.cases import CASES


def plan(name: str, workdir: Path) -> FramesPlan:
    files = write_frames(build_graph(CASES[name]()), workdir)
    assert {path.name for path in workdir.iterdir()} == set(files)
    return read_frames(workdir)


def test_a_sum_and_a_relu_run_with_the_convolution_before_them(tmp_path: Path) -> None:
    (step,) = plan("conv_3d_add_relu", tmp_path).steps
    assert (step.source, step.addend, step.depth, step.front) == ("x", "r", 3, 1)


def test_what_is_read_elsewhere_too_is_made_apart(tmp_path: Path) -> None:
    assert len(plan("conv_3d_inner_output", tmp_path).steps) == 2


def test_a_residual_block_is_a_network_a_convolution(tmp_path: Path) -> None:
    steps = plan("residual_block_3d", tmp_path).steps
    assert [step.depth for step in steps] == [3, 3, 1]
    assert steps[-1].addend == steps[1].result


@pytest.mark.parametrize(("name", "frames"), [("conv_3d", 1), ("conv_3d_many_weights", 4)])
def test_small_planes_with_large_weights_are_made_together(name: str, frames: int, tmp_path: Path) -> None:
    assert plan(name, tmp_path).steps[0].frames == frames


def test_frames_in_one_plane_are_as_far_apart_as_strides_and_padding_ask(tmp_path: Path) -> None:
    (step,) = plan("conv_3d_many_weights_stride", tmp_path).steps
    assert (step.pitch, step.result_pitch) == (8, 4)
