"""What is wrong for inputs at their edge is wrong: a whole model, and an artifact; a piece is not run on them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from collage_evo.fitness.jobs import Measured
from collage_evo.fitness.references import read_references, write_references
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.check.edges import edge_samples
from collage_evo.graph.reference.reference import Reference
from tests.fitness.helpers import checked, make_setting


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_whole_model_and_an_artifact_are_held_against_edge_samples(backend: str, tmp_path: Path) -> None:
    setting = make_setting(tmp_path)
    model = onnx.load(setting.files.original)
    ((feeds, _),) = read_references(setting.files.reference)
    write_references(setting.files.edges, edge_samples(model, feeds, Reference(model)))
    assert not [answer for answer in checked(setting, backend) if isinstance(answer, Failure)]
    ((edge, right),) = read_references(setting.files.edges)
    write_references(setting.files.edges, [(edge, {name: 1.5 * value for name, value in right.items()})])
    piece, *wholes = checked(setting, backend)
    assert isinstance(piece, Measured)
    for answer in wholes:
        assert isinstance(answer, Failure)
        assert answer.fault is Fault.WRONG_NUMBERS
        assert "large or tiny numbers" in answer.message
