"""float32, bfloat16 and int8 in one OpenVINO piece: each operator runs in what is written for it, or nothing does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.backends.openvino.backend import OpenVinoBackend
from collage_evo.graph.extract import extract
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import reference_outputs, relative_error
from collage_evo.patterns.match import Region
from collage_evo.quantise.arithmetic import Arithmetic
from collage_evo.quantise.marks import mark_bfloat16
from collage_evo.quantise.numerics import Numerics, numerics_of
from collage_evo.quantise.region import written_region
from collage_evo.target.processor import this_machine
from collage_evo.testing.models import chain
from tests.quantise.nets import ranges_of
from tests.support.numerics import in_bfloat16

BACKEND = OpenVinoBackend()
CAST, DEFAULT = BACKEND.variant("bf16-cast"), BACKEND.variant("default")
GRAPH = build_graph(chain(3))
"""Convolutions, each with a Relu: nodes 0 to 5."""
MIXED = numerics_of((Arithmetic.INT8, 0b000011), (Arithmetic.BFLOAT16, 0b001100))
needs_bfloat16 = pytest.mark.skipif(bool(BACKEND.declines(CAST)), reason=BACKEND.declines(CAST))
needs_both = pytest.mark.skipif(
    not all(map(this_machine().computes_in, ("int8", "bfloat16"))), reason="no instructions for both here"
)


def model_of(numerics: Numerics) -> onnx.ModelProto:
    ranges = ranges_of(GRAPH)
    return written_region(GRAPH, GRAPH.all_nodes, numerics, ranges, BACKEND.quantisers("default"))


def outputs(graph: Graph, model: onnx.ModelProto, work: Path) -> list[np.ndarray]:
    """What ``model`` built and loaded gives on random inputs."""
    built = BACKEND.build(model, Target(), DEFAULT, work)
    assert isinstance(built, Built), built
    sides = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
    made = [np.zeros(tensor.shape, np.float32) for tensor in sides[1]]
    given = list(random_inputs(graph, 0).values())
    BACKEND.load(work, Target(), DEFAULT, *sides).bind(given, made)()
    return made


@needs_both
def test_each_operator_runs_in_its_own_precision_after_the_import(tmp_path: Path) -> None:
    exact = list(reference_outputs(GRAPH.model, random_inputs(GRAPH, 0), 1))
    errors = {}
    for name, numerics in {"float32": (), "bfloat16": in_bfloat16(0b111111), "one": in_bfloat16(0b11)}.items():
        work = tmp_path / name
        work.mkdir()
        errors[name] = relative_error(outputs(GRAPH, model_of(numerics), work), exact).relative
    assert errors["float32"] < 1e-5 < errors["one"] < errors["bfloat16"] < 0.02
    assert 1e-4 < relative_error(outputs(GRAPH, model_of(MIXED), tmp_path), exact).relative < 0.1


@needs_bfloat16
def test_what_is_not_as_written_is_no_piece(tmp_path: Path) -> None:
    plain = extract(GRAPH, GRAPH.all_nodes)
    mark_bfloat16(plain, ["n0_Conv"])
    failed = BACKEND.build(plain, Target(), DEFAULT, tmp_path)
    assert isinstance(failed, BuildFailure)
    assert failed.reason == "openvino: n0_Conv is written in bfloat16 and runs in f32"
    all_low = BACKEND.build(model_of(in_bfloat16(0b11)), Target(), BACKEND.variant("bf16"), tmp_path)
    assert isinstance(all_low, BuildFailure)
    assert "runs in bfloat16, in which it is not written" in all_low.reason


def test_a_processor_without_bfloat16_declines_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from collage_evo.backends import checks
    from collage_evo.target.processor import Machine

    monkeypatch.setattr(checks, "this_machine", lambda: Machine("x86_64", "old", frozenset({"avx2"})))
    assert "no instructions for bfloat16" in BACKEND.declines(CAST)


def test_casts_make_pieces_with_float32_and_int8_and_no_whole_file_is_run_so() -> None:
    assert CAST.base == BACKEND.variant("int8").base == "default"
    assert CAST.writes
    assert Region(1, "openvino", numerics=in_bfloat16(1)) != Region(1, "openvino")
