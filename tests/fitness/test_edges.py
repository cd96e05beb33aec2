"""What is wrong for inputs at their edge is wrong: a whole model, and an artifact; a piece is not run on them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from collage_evo.backends.registry import get_backend
from collage_evo.fitness.jobs import CostJob, Measured, Opened, OpenJob, WholeJob
from collage_evo.fitness.references import read_references, write_references
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.check.edges import edge_samples
from collage_evo.graph.reference.reference import Reference
from collage_evo.patterns.match import Region
from tests.fitness.helpers import TIMING, make_setting


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("off_by", [0.0, 0.5])
def test_a_whole_model_and_an_artifact_are_held_against_edge_samples(
    backend: str, off_by: float, tmp_path: Path
) -> None:
    if not get_backend(backend).probe().available:
        pytest.skip(f"{backend} is not installed")
    setting = make_setting(tmp_path)
    model = onnx.load(setting.files.original)
    ((feeds, _),) = read_references(setting.files.reference)
    write_references(setting.files.edges, edge_samples(model, feeds, Reference(model)))
    artifact = str(tmp_path / "whole.collage")
    with Sandbox(setting, (), 2**33) as sandbox:
        whole = sandbox.call(WholeJob(backend, "default", artifact, TIMING), 60.0)
    assert isinstance(whole, Measured), "right answers stay right"
    ((edge, right),) = read_references(setting.files.edges)
    write_references(setting.files.edges, [(edge, {name: value * (1 + off_by) for name, value in right.items()})])
    with Sandbox(setting, (), 2**33) as sandbox:
        piece = sandbox.call(CostJob(Region(3, backend, "default"), TIMING, 1e9, flush=False), 60.0)
        jobs = WholeJob(backend, "default", artifact, TIMING), OpenJob(artifact)
        answers = [sandbox.call(job, 60.0) for job in jobs]
    assert isinstance(piece, Measured)
    for answer in answers:
        if off_by:
            assert isinstance(answer, Failure)
            assert answer.fault is Fault.WRONG_NUMBERS
            assert "large or tiny numbers" in answer.message
        else:
            assert isinstance(answer, Measured | Opened)
