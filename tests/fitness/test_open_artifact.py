"""Artifacts that a worker process opens: the times of their kernels have the names of the user's nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.fitness.jobs import ArtifactJob, Traced, TraceJob, Written
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import NodeSet, members
from collage_evo.graph.load.files import read_model
from collage_evo.patterns.match import Region
from tests.fitness.helpers import LONG_S, make_setting


@pytest.mark.parametrize(("backend", "regions"), [("onnxruntime", (1, 2)), ("openvino", (3,))])
def test_kernels_of_a_placement_are_of_nodes_in_their_regions(
    backend: str, regions: tuple[NodeSet, ...], tmp_path: Path
) -> None:
    setting, artifact = make_setting(tmp_path), str(tmp_path / "a.collage")
    nodes = build_graph(read_model(setting.files.normalised)).nodes
    placed = tuple(Region(inside, backend) for inside in regions)
    with Sandbox(setting, (), 2**30) as sandbox:
        assert isinstance(sandbox.call(ArtifactJob(placed, artifact, {"key": "k"}), LONG_S), Written)
        traced = sandbox.call(TraceJob(artifact, 3), LONG_S)
    assert isinstance(traced, Traced)
    named = [(number, name) for number, names, _ in traced.kernels for name in names]
    assert (0, nodes[0].name) in named
    inside = {(number, nodes[k].name) for number, region in enumerate(regions) for k in members(region)}
    assert {*named} <= inside
    assert all(ms >= 0.0 for *_, ms in traced.kernels)
