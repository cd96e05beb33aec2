"""Another precision written into regions needs an entry of the catalogue, and nothing else of this package."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto

from collage_evo.backends.checks import numerics_in
from collage_evo.backends.variants import Variant
from collage_evo.errors import InputError
from collage_evo.fitness.kernels import node_owners
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.patterns.match import Region
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.marks import written_in
from collage_evo.precision.transforms import catalogue, sensitivity
from collage_evo.precision.transforms.casts import Casts
from collage_evo.precision.transforms.edits import Edits, numerics_of
from collage_evo.precision.transforms.piece import EditedRegion, structure_text
from collage_evo.precision.transforms.sensitivity import error_sensitivities
from collage_evo.precision.transforms.transform import Data
from tests.support.models import chain
from tests.support.numerics import in_bfloat16

GRAPH = build_graph(chain(3))
"""Convolutions, each with a Relu: nodes 0 to 5."""
EVERYTHING = GRAPH.all_nodes
LOW = numerics_of((Arithmetic.FLOAT16, EVERYTHING))


def edited(edits: Edits) -> EditedRegion:
    return EditedRegion(GRAPH, EVERYTHING, edits, Data())


@pytest.fixture
def float16(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (*catalogue.TRANSFORMS, Casts(Arithmetic.FLOAT16, TensorProto.FLOAT16, np.dtype(np.float16)))
    for module in (catalogue, sensitivity):
        monkeypatch.setattr(module, "TRANSFORMS", known)


def test_what_nothing_writes_is_refused() -> None:
    assert numerics_in(GRAPH, EVERYTHING, Variant("f16-cast", Arithmetic.FLOAT16, base="default")) == ()
    with pytest.raises(InputError, match="nothing writes float16 into a region"):
        edited(LOW).model()


@pytest.mark.usefixtures("float16")
def test_matches_models_keys_and_shares_know_it() -> None:
    assert numerics_in(GRAPH, EVERYTHING, Variant("f16-cast", Arithmetic.FLOAT16, base="default")) == LOW
    feeds, model = random_inputs(GRAPH, 0), edited(LOW).model()
    assert written_in(model, Arithmetic.FLOAT16) == {node.name for node in model.graph.node if node.op_type != "Cast"}
    assert len({edited(LOW).key, edited(in_bfloat16(EVERYTHING)).key, ""}) == 3
    assert structure_text(GRAPH, EVERYTHING, LOW) == "|float16 0,1,2,3,4,5"
    owners, _ = node_owners(GRAPH, Region(EVERYTHING, "openvino", edits=LOW), model)
    assert all(owners[name] for name in written_in(model, Arithmetic.FLOAT16))
    measured = relative_error(reference_outputs(model, {"i0": feeds["x"]}), reference_outputs(GRAPH.model, feeds))
    predicted = math.sqrt(sum(error_sensitivities(GRAPH, {}, [feeds])[Arithmetic.FLOAT16]))
    assert 1e-5 < measured.relative < 1e-2
    assert 0.5 < predicted / measured.relative < 2.5, "the reference, without kernels for it, rounds less"


@pytest.mark.usefixtures("float16")
def test_two_smaller_types_stand_in_one_piece() -> None:
    model = edited((*in_bfloat16(0b11), (Arithmetic.FLOAT16, 0b1100))).model()
    told = [written_in(model, kind) for kind in (Arithmetic.BFLOAT16, Arithmetic.FLOAT16)]
    assert [{name.partition("_")[2] for name in names} for names in told] == [{"Conv", "Relu"}] * 2
    assert not told[0] & told[1]
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    for names, kind in zip(told, (TensorProto.BFLOAT16, TensorProto.FLOAT16), strict=True):
        assert {types[node.output[0]] for node in model.graph.node if node.name in names} == {kind}
